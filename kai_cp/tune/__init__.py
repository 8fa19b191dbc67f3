"""Compare settings on snapshots side by side, and search for better ones."""
