"""Claims with access mode ReadWriteOncePod: one pod of the cluster alone uses such a claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.records.storage import StorageObjects
from kai_cp_models.rules.stateful.forked import Forked
from kai_cp_models.rules.stateful.protocol import Row

MODE: Final = "ReadWriteOncePod"
Users = tuple[frozenset[PodKey], frozenset[PodKey]]
"""Pods that use a claim: staying, leaving."""
_NOBODY: Final[Users] = (frozenset(), frozenset())
_AWAY: Final[Users] = (frozenset((PodKey("", ""),)), frozenset())
"""A pod on a node outside the snapshot."""


class Exclusive(Forked):
    """Which pods use which of these claims."""

    def __init__(self, objects: StorageObjects) -> None:
        self._claims = frozenset(key for key, claim in objects.claims.items() if MODE in claim.modes)
        self._users: dict[PodKey, Users] = dict.fromkeys(self._claims & objects.away, _AWAY)

    def detach(self) -> None:
        """Copy what may change, after a shallow copy."""
        self._users = dict(self._users)

    def claims(self, pod: Pod) -> list[PodKey]:
        """Those of the pod's claims that only one pod may use."""
        if not self._claims:
            return []
        keys = (PodKey(pod.key.namespace, name) for name in pod.spec.volume_claims)
        return [key for key in keys if key in self._claims]

    def count(self, pod: Pod, sign: int, *, leaving: bool) -> None:
        """Add (1) or remove (-1) the pod as a user of its claims."""
        for key in self.claims(pod):
            users = list(self._users.get(key, _NOBODY))
            users[leaving] = users[leaving] | {pod.key} if sign > 0 else users[leaving] - {pod.key}
            self._users[key] = (users[0], users[1])

    def free(self, pod: Pod, *, now: bool) -> bool:
        """Whether no other pod uses the pod's claims."""
        for key in self.claims(pod):
            stay, leave = self._users.get(key, _NOBODY)
            if (stay | leave if now else stay) - {pod.key}:
                return False
        return True

    def rows(
        self, classes: Sequence[Pod], nodes: Sequence[int], staying: Iterable[tuple[Pod, int]]
    ) -> Iterator[Row]:
        """At most one pod per claim, wherever it is."""
        takers: dict[PodKey, list[int]] = {}
        for c, pod in enumerate(classes):
            for key in self.claims(pod):
                takers.setdefault(key, []).append(c)
        held = [(pod, self.claims(pod)) for pod, _ in staying] if takers else []
        for key, members in takers.items():
            entering = {(c, node): 1 for c in members for node in nodes}
            leaving = {pod.key: 1 for pod, keys in held if key in keys}
            yield Row(entering, max(0, 1 - len(self._users.get(key, _NOBODY)[0])), leaving, "storage")
