"""What is counted and kept for whoever looks: metrics and the last cycles."""
