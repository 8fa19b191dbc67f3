"""The binder's process: it turns each BindRequest into a bound pod, step by step."""
