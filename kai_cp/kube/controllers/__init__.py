"""The controllers of one process. Each module names the kinds it follows and reconciles one key."""
