"""What is counted and kept for those that look: metrics and the last cycles."""
