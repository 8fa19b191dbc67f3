"""From workloads to pod groups: which group a pod belongs to, and what that group asks for.

Pure values in, pure values out: objects as JSON, read through :class:`kai_cp.workloads.reads.Reads`. What a
kind of workload means is one row of ``kinds.yaml``, with a function in ``shapes`` where a row cannot say it.
"""
