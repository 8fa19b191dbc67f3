"""The independent checker: it says in plain Python whether a plan is allowed.

It shares only the snapshot records with the engine, so that an error in the engine is not repeated here.
Every subject is a module with ``broken(world)``, which names rule, object and numbers.
"""

from __future__ import annotations

from kai_cp_models.check.audit import violations
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.snapshot_facts import SnapshotFacts
from kai_cp_models.check.waste import waste

__all__ = ["PlannedCluster", "SnapshotFacts", "violations", "waste"]
