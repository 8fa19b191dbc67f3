"""The scheduler's process: look, decide, act, and say why."""
