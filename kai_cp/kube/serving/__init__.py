"""What every long-running process has: options, logs, HTTP, signals and one way to end."""
