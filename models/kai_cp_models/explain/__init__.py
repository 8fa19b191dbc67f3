"""Why a pod group waits: a message for every group of a cycle (``waiting``), and proofs for single groups."""

from kai_cp_models.explain.waiting import explain_pod, unscheduled

__all__ = ["explain_pod", "unscheduled"]
