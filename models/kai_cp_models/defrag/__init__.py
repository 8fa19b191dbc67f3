"""Defragmentation: capacity freed by restarting pods elsewhere, with the fewest restarts, in a safe order."""
