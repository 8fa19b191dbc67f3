"""Fairness among queues: shares, limits, order, reclaim rules and minimum runtimes (3, 4.1, 4.4, 4.6)."""
