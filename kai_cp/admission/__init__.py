"""Admission as pure functions: what a pod becomes, and which objects are refused (components, section 2)."""
