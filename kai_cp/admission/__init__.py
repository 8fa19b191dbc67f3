"""Admission as pure functions: how a pod is changed, and which objects are refused (components, section
2).
"""
