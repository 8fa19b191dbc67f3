"""Objects a pod needs: ConfigMaps and PersistentVolumeClaims of its namespace exist (7.1, 2.7)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.records.storage import VOLUME_CLAIMS


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods that miss an object, or whose volume claim is being deleted."""
    if not world.snapshot.policy.plugin("predicates"):
        return
    if not any(spec.config_maps or spec.volume_claims for spec in world.placed_specs):
        return
    claims = world.snapshot.extras[VOLUME_CLAIMS]
    for key in world.placed:
        spec = world.pod(key).spec
        for name in spec.config_maps:
            if (key.namespace, name) not in world.snapshot.config_maps:
                yield Violation(
                    "objects", f"pod {key} needs ConfigMap {name}, which does not exist", pods=(key,)
                )
        for name in spec.volume_claims:
            deleted = claims.get((key.namespace, name))
            if deleted is None:
                yield Violation(
                    "objects",
                    f"pod {key} needs PersistentVolumeClaim {name}, which does not exist",
                    pods=(key,),
                )
            elif deleted:
                yield Violation(
                    "objects",
                    f"pod {key} needs PersistentVolumeClaim {name}, which is being deleted",
                    pods=(key,),
                )
