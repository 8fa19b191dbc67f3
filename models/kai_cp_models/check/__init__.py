"""The independent checker: it says in plain Python whether a plan is allowed.

It imports no planning code, so that an error there is not repeated here; models/README.md ("The checker")
lists the facts that both share.
Every subject is a module with ``broken(world)``, which yields what is broken as ``Violation``.
"""

from __future__ import annotations

from kai_cp_models.check.audit import audit, violations
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.snapshot_facts import SnapshotFacts
from kai_cp_models.check.waste import waste

__all__ = ["PlannedCluster", "SnapshotFacts", "Violation", "audit", "violations", "waste"]
