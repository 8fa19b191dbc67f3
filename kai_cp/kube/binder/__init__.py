"""The binder's process: from BindRequest to bound pod, one step at a time."""
