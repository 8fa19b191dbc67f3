"""Attach limits: how many different volumes of a CSI driver a node may hold (CSINode)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.records.storage import StorageObjects
from kai_cp_models.rules.stateful.forked import Forked
from kai_cp_models.rules.stateful.protocol import Row
from kai_cp_models.snapshot import Snapshot

AttachedUse = tuple[int, int]
"""Pods that hold a volume on a node: staying, leaving."""


class Attached(Forked):
    """Which limited volumes are on which node. A volume counts once, however many pods use it."""

    def __init__(self, snapshot: Snapshot, objects: StorageObjects) -> None:
        self._objects = objects
        count = len(snapshot.nodes)
        self._limits: dict[str, NDArray[np.int64]] = {}
        for driver, by_node in objects.limits.items():
            unlimited = np.iinfo(np.int32).max
            found = [by_node.get(node.name, unlimited) for node in snapshot.nodes]
            self._limits[driver] = np.array(found, dtype=np.int64)
        self._uses: dict[tuple[int, str, str], AttachedUse] = {}
        self._counts = {driver: np.zeros((2, count), dtype=np.int64) for driver in self._limits}
        """Different volumes per node, by driver: in the end, now."""
        self._everywhere = np.ones(count, dtype=np.bool_)

    def detach(self) -> None:
        """Copy what may change, after a shallow copy."""
        self._uses = dict(self._uses)
        self._counts = {driver: counts.copy() for driver, counts in self._counts.items()}

    def volumes(self, pod: Pod) -> set[tuple[str, str]]:
        """(driver, volume) of the pod's claims, where the driver has a limit anywhere."""
        if not self._limits:
            return set()
        found = set()
        for name in pod.spec.volume_claims:
            claim = self._objects.claims.get(PodKey(pod.key.namespace, name))
            if claim is None:
                continue
            volume = self._objects.volumes.get(claim.volume) if claim.volume else None
            storage_class = self._objects.classes.get(claim.storage_class)
            if volume is not None:
                entry = (volume.driver, volume.handle)
            else:
                entry = (storage_class.provisioner if storage_class else "", str(claim.key))
            if entry[0] in self._limits:
                found.add(entry)
        return found

    def count(self, pod: Pod, node: int, sign: int, *, leaving: bool) -> None:
        """Account the pod's volumes on a node."""
        for driver, volume in self.volumes(pod):
            before = self._uses.get((node, driver, volume), (0, 0))
            after = (before[0], before[1] + sign) if leaving else (before[0] + sign, before[1])
            self._uses[node, driver, volume] = after
            self._counts[driver][0, node] += (after[0] > 0) - (before[0] > 0)
            self._counts[driver][1, node] += (sum(after) > 0) - (sum(before) > 0)

    def mask(self, pod: Pod, *, now: bool) -> Mask:
        """[N] nodes that can attach what the pod brings."""
        mask = self._everywhere.copy()
        volumes = self.volumes(pod)
        for driver in {driver for driver, _ in volumes}:
            own = [volume for d, volume in volumes if d == driver]
            total = self._counts[driver][int(now)] + len(own)
            for (node, d, volume), (stay, leave) in self._uses.items():
                if d == driver and volume in own and stay + (leave if now else 0) > 0:
                    total[node] -= 1
            mask &= total <= self._limits[driver]
        return mask

    def rows(
        self,
        classes: Sequence[Pod],
        sizes: Sequence[int],
        nodes: Sequence[int],
        staying: Iterable[tuple[Pod, int]],
    ) -> Iterator[Row]:
        """Volumes that enter a node against those it may still attach."""
        alone = [(c, pod) for c, pod in enumerate(classes) if sizes[c] == 1]
        held = [(pod, node) for pod, node in staying if self.volumes(pod)]
        for driver, limit in self._limits.items():
            users: dict[str, int] = {}
            for _, pod in alone:
                for d, volume in self.volumes(pod):
                    users[volume] = users.get(volume, 0) + (d == driver)
            for node in nodes:
                entering = {
                    (c, node): own
                    for c, pod in alone
                    if (own := sum(d == driver and users[v] == 1 and (node, d, v) not in self._uses
                                   for d, v in self.volumes(pod)))
                }  # fmt: skip
                if entering and limit[node] < np.iinfo(np.int32).max:
                    leaving = {
                        pod.key: own
                        for pod, where in held
                        if where == node and (own := sum(d == driver for d, _ in self.volumes(pod)))
                    }
                    bound = max(int(limit[node] - self._counts[driver][0, node]), 0)
                    yield Row(entering, bound, leaving, "storage")
