"""The scheduler's process: observe, decide, act and explain."""
