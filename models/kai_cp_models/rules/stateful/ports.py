"""Host ports (7.1, NodePorts): no two pods of a node hold the same protocol, port and address.

The addresses "" and "0.0.0.0" mean every address and conflict with all of them; two different
addresses do not conflict. Every (protocol, port, address) that any pod names is one *slot* of the
node; a wildcard takes all slots of its port. So pods conflict exactly when they share a slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod, PodKey, PodSpec
from kai_cp_models.rules.stateful.protocol import Row, RuleState
from kai_cp_models.rules.stateful.tally import Effect, TalliedState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shown import plural
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "ports"
ANY: Final = ""
"""The slot of a port that is named without an address."""


class Slot(NamedTuple):
    """One thing that at most one pod of a node may hold."""

    protocol: str
    port: int
    address: str


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether any pod asks for a host port."""
    return snapshot.policy.plugin("predicates") and any(spec.host_ports for spec in snapshot.specs)


def open(snapshot: Snapshot) -> RuleState:
    """Ports held by the pods of every node."""
    return PortState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """Host ports have no objects of their own."""
    yield from ()


class PortState(TalliedState):
    """The number of holders of every slot per node (above one only if the input has a conflict)."""

    name = NAME
    family = "ports"
    of_one_node = True

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        named: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for spec in snapshot.specs:
            for address, protocol, port in spec.host_ports:
                named[protocol, port] |= set() if _wildcard(address) else {address}
        self._named = {place: sorted(found) or [ANY] for place, found in named.items()}
        self._slots: dict[PodSpec, tuple[Slot, ...]] = {}
        self._load()

    def slots(self, pod: Pod) -> tuple[Slot, ...]:
        """The slots that the pod takes."""
        spec = pod.spec
        if not spec.host_ports:
            return ()
        if spec not in self._slots:
            self._slots[spec] = tuple(
                sorted(
                    {
                        Slot(protocol, port, each)
                        for address, protocol, port in spec.host_ports
                        for each in (self._named[protocol, port] if _wildcard(address) else [address])
                    }
                )
            )
        return self._slots[spec]

    def _effects(self, pod: Pod) -> Iterable[Effect]:
        return ((slot, 1) for slot in self.slots(pod))

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        free: Mask | None = None
        for slot in self.slots(pod):
            held = self.tally.counts(slot, now=now)
            if held is not None:
                free = held <= 0 if free is None else free & (held <= 0)
        return free

    def refusals(self, pod: Pod) -> str:
        free = self.mask(pod, now=True)
        taken = 0 if free is None else int(np.count_nonzero(~free))
        wanted = ", ".join(sorted({f"{port}/{protocol}" for _, protocol, port in pod.spec.host_ports}))
        return f"host port {wanted} is taken by another pod on {plural(taken, 'node')}" if taken else ""

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rows are exact: at most one pod per node and slot."""
        takers: defaultdict[Slot, list[int]] = defaultdict(list)
        for c, pod in enumerate(classes):
            for slot in self.slots(pod):
                takers[slot].append(c)
        holders: defaultdict[tuple[Slot, int], dict[PodKey, int]] = defaultdict(dict)
        for pod, node in self._staying():
            for slot in self.slots(pod):
                holders[slot, node][pod.key] = 1
        for slot, found in takers.items():
            held = self.tally.counts(slot, now=False)
            for node in nodes:
                # If the input already has a conflict, one leaving pod is not enough; the mask covers that.
                bound = max(0, 1 - (0 if held is None else int(held[node])))
                yield Row({(c, node): 1 for c in found}, bound, holders.get((slot, node), {}), NAME)


def _wildcard(address: str) -> bool:
    return address in ("", "0.0.0.0")
