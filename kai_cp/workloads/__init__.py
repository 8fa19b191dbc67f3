"""From workloads to pod groups: which group a pod belongs to, and what that group requests.

All functions are pure: they read objects as JSON through :class:`kai_cp.workloads.reads.Reads`. One row of
``kinds.yaml`` describes a kind of workload, with a function in ``shapes`` where a row is not enough.
"""
