"""Explain and what-if: why a pod group waits, what was tried and would help, and what a change would do."""
