"""What leaves at the start of a holder: backfill on its places, and victims of an accepted price (12.5).

It follows from the starts alone, so no plan can count on an eviction that another start has made void.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, Pod
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.holders import outranks
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True, slots=True)
class Departure:
    """A running group that is evicted at an instant, for a holder."""

    at: float
    holder: GroupKey


@dataclass(frozen=True, eq=False)
class StartClaim:
    """A start for which others may have to leave. ``stored``: the places that backfill has to leave."""

    group: PodGroup
    start: float
    stored: Stored | None
    victims: tuple[GroupKey, ...] = ()

    def identity(self) -> tuple[GroupKey, float, bool, tuple[GroupKey, ...]]:
        """What tells claims of one cycle apart."""
        return self.group.key, self.start, self.stored is not None, self.victims


def leaving(times: Times, claims: Sequence[StartClaim]) -> Mapping[GroupKey, Departure]:
    """What leaves for ``claims``, which come in the order of holders; computed once for equal starts."""
    known = times.departures.get(key := tuple(claim.identity() for claim in claims))
    if known is None:
        known = times.departures[key] = _leaving(times, claims)
    return known


def _leaving(times: Times, claims: Sequence[StartClaim]) -> Mapping[GroupKey, Departure]:
    found: dict[GroupKey, Departure] = {}
    for claim in claims:
        # A holder that starts now, before its promised start, has no right to evict.
        if claim.stored is not None and not claim.start <= times.now < claim.stored.start:
            for key in _backfilled(times, claim.group, claim.stored, claim.start, found):
                found[key] = Departure(claim.start, claim.group.key)
    for claim in claims:
        for key in claim.victims:
            if key not in found or claim.start <= found[key].at:
                found[key] = Departure(claim.start, claim.group.key)
    return found


def _backfilled(
    times: Times, holder: PodGroup, stored: Stored, start: float, taken: Mapping[GroupKey, Departure]
) -> list[GroupKey]:
    """Groups that run on the holder's places by backfill and are in its way at ``start``.

    Backfill is preemptible, came there at or after the time the reservation was made, which does not wait for
    its end, and does not outrank the holder (12.8). The newest leave first. ``taken``: groups that leave for
    holders before this one.
    """
    snapshot = times.snapshot
    by_node: dict[str, list[tuple[PodGroup, Pod]]] = {name: [] for name in stored.nodes}
    for pod in snapshot.pods:
        on = by_node.get(pod.node or "")
        if on is not None and pod.status in ACTIVE_ALLOCATED:
            owner = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
            if owner is not None:
                on.append((owner, pod))
    found, beside = dict[GroupKey, None](), stored.beside | {holder.key}

    def remains(group: PodGroup) -> bool:
        """Whether a running group still runs at the start, unless it is evicted."""
        if group.key in found:
            return False
        leaves = taken[group.key].at if group.key in taken else NEVER
        return min(times.end(group.key), leaves) > start

    for name, gpus in sorted(stored.nodes.items()):
        node = snapshot.nodes[snapshot.node_index[name]]
        there: dict[GroupKey, list[Pod]] = {}
        for one, pod in by_node[name]:
            if remains(one):
                there.setdefault(one.key, []).append(pod)
        used = sum(map(_size, chain.from_iterable(there.values())))
        left = node.allocatable[GPU] - round(gpus * MILLI) - used
        groups = (snapshot.group_by_key[key] for key in there.keys() - beside)
        in_the_way = sorted(
            (
                (one, sum(map(_size, there[one.key])))
                for one in groups
                if one.preemptible
                and times.entered(one, there[one.key]) >= stored.made
                and not outranks(one, holder)
            ),
            key=lambda entry: (-times.start(entry[0]), entry[0].key),
        )
        for one, size in in_the_way:
            if left >= 0:
                break
            found[one.key] = None
            left += size
    return list(found)


def _size(pod: Pod) -> int:
    """Milli-GPUs that the pod takes at most."""
    return pod.spec.requests[GPU] + pod.spec.gpu.devices * MILLI * pod.spec.gpu.shares
