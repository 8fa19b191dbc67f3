"""Defragmentation: what can be had by restarting pods elsewhere, at the fewest restarts, in a safe order."""
