"""Controllers of one process: a small module says what it wants and reconciles one key."""
