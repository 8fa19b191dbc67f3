"""Why a pod group waits: a message for every group of a cycle (``waiting``), and proofs for one of them."""

from kai_cp_models.explain.waiting import dead_end, explain_pod, unscheduled

__all__ = ["dead_end", "explain_pod", "unscheduled"]
