"""The shared parts of every long-running process: options, logs, HTTP, signals and shutdown."""
