"""Objects that must exist: ConfigMaps and PersistentVolumeClaims in the pod's namespace (7.1, 2.7).

A missing object, or a claim that is being deleted, refuses every node, and no eviction helps (4.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod
from kai_cp_models.records.storage import VOLUME_CLAIMS
from kai_cp_models.rules.stateful.protocol import LeavingState, RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "references"


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether any pod needs a ConfigMap or a volume claim."""
    return snapshot.policy.plugin("predicates") and any(
        spec.config_maps or spec.volume_claims for spec in snapshot.specs
    )


def open(snapshot: Snapshot) -> RuleState:
    """The objects that exist."""
    return ObjectState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Nothing: a missing object is the pod's problem, and the pod's reason names it."""
    yield from ()


class ObjectState(LeavingState):
    """Existence of objects, constant through a cycle, and the pods evicted in it."""

    name = NAME

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._claims = snapshot.extras[VOLUME_CLAIMS]

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.config_maps or pod.spec.volume_claims)

    def identity(self, pod: Pod) -> Hashable:
        return pod.key.namespace if self.concerns(pod) else None

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        if not self.dead_end(pod):
            return None
        mask = np.zeros(len(self._snapshot.nodes), dtype=np.bool_)
        if pod.key in self.left and pod.node is not None:
            # A victim may stay in its place, because it does not start again.
            mask[self._snapshot.node_index[pod.node]] = True
        return mask

    def refusals(self, pod: Pod) -> str:
        return self.dead_end(pod)

    def dead_end(self, pod: Pod) -> str:
        namespace = pod.key.namespace
        maps = [name for name in pod.spec.config_maps if (namespace, name) not in self._snapshot.config_maps]
        if maps:
            which = (
                f"ConfigMaps {', '.join(sorted(maps))} do" if len(maps) > 1 else f"ConfigMap {maps[0]} does"
            )
            return f"{which} not exist in namespace {namespace}"
        for name in pod.spec.volume_claims:
            deleted = self._claims.get((namespace, name))
            if deleted is None:
                return f'persistentvolumeclaim "{name}" not found in namespace {namespace}'
            if deleted:
                return f'persistentvolumeclaim "{name}" in namespace {namespace} is being deleted'
        return ""
