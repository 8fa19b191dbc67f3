"""What leaves at the start of a holder: backfill on its places, and victims of an accepted price (12.5).

It follows from the starts alone, so no plan can count on an eviction that another start has made void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        """What distinguishes the claims of one cycle."""
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
    by_node: dict[str, list[Pod]] = {name: [] for name in stored.nodes}
    for pod in snapshot.pods:
        if pod.node in by_node and pod.status in ACTIVE_ALLOCATED:
            by_node[pod.node].append(pod)
    found, beside = dict[GroupKey, None](), stored.beside | {holder.key}

    def remains(group: GroupKey | None) -> bool:
        """Whether what runs still runs at the start, unless it is evicted."""
        leaves = taken[group].at if group is not None and group in taken else NEVER
        return group not in found and min(times.end(group), leaves) > start

    for name, gpus in sorted(stored.nodes.items()):
        left = snapshot.nodes[snapshot.node_index[name]].allocatable[GPU] - round(gpus * MILLI)
        there: dict[GroupKey | None, list[Pod]] = {}
        for pod in by_node[name]:
            if remains(pod.group):
                there.setdefault(pod.group, []).append(pod)
        groups = (snapshot.group_by_key[key] for key in there if key is not None and key not in beside)
        in_the_way = sorted(
            (
                one
                for one in groups
                if one.preemptible
                and times.entered(one, there[one.key]) >= stored.made
                and not outranks(one, holder)
            ),
            key=lambda one: (-times.start(one), one.key),
        )
        for one in in_the_way:
            if _milli_gpus(chain.from_iterable(there.values())) <= left:
                break
            found[one.key] = None
            del there[one.key]
    return list(found)


def _milli_gpus(pods: Iterable[Pod]) -> int:
    """What the pods take of one node; devices that they share count once, and as whole ones."""
    own = [pod for pod in pods if not pod.reservation]
    return sum(pod.spec.requests[GPU] for pod in own) + MILLI * len({n for p in own for n in p.gpu_groups})
