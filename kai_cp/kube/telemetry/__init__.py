"""Metrics, and the records of the last cycles."""
