"""What a person reads: tables for the terminal, made from ``decisions/1`` and from snapshots."""
