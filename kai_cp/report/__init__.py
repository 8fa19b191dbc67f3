"""Reports for people: tables for the terminal, made from ``decisions/1`` and snapshots."""
