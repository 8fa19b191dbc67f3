"""What leaves at the start of a holder: backfill on its places, and victims of an accepted price (12.5).

It follows from the starts alone, so no plan can count on an eviction that another start has made void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, Pod, PodKey
from kai_cp_models.records.notes import Stored
from kai_cp_models.reservations.holders import outranks
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Gang


@dataclass(frozen=True, slots=True, eq=False)
class Departure:
    """Running pods that are evicted together at an instant, for a holder: a unit of their group (5.4)."""

    at: float
    holder: GroupKey
    pods: Sequence[Pod]


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


def leaving(times: Times, claims: Sequence[StartClaim]) -> Mapping[PodKey, Departure]:
    """The departures for ``claims`` (in the order of holders), in their order; computed once for equal
    starts."""
    known = times.departures.get(key := tuple(claim.identity() for claim in claims))
    if known is None:
        known = times.departures[key] = _leaving(times, claims)
    return known


def _leaving(times: Times, claims: Sequence[StartClaim]) -> Mapping[PodKey, Departure]:
    found: dict[PodKey, Departure] = {}
    for claim in claims:
        # A holder that starts now, before its promised start, has no right to evict.
        if claim.stored is not None and not claim.start <= times.now < claim.stored.start:
            _backfilled(times, claim.group, claim.stored, claim.start, found)
    for claim in claims:
        for key in claim.victims:
            pods = tuple(pod for pod in times.snapshot.members[key] if pod.status in ACTIVE_ALLOCATED)
            bought = Departure(claim.start, claim.group.key, pods)
            found.update(
                (pod.key, bought) for pod in pods if pod.key not in found or claim.start <= found[pod.key].at
            )
    return found


def _backfilled(
    times: Times, holder: PodGroup, stored: Stored, start: float, found: dict[PodKey, Departure]
) -> None:
    """Add the backfill on the holder's places that is in its way at ``start``.

    Backfill is preemptible and does not outrank the holder (12.8). It came at or after the time the
    reservation was made, and the reservation does not wait for its end. The newest groups leave first, each
    unit by unit. ``found``: what leaves, including for earlier holders.
    """
    snapshot = times.snapshot
    by_node: dict[str, list[Pod]] = {name: [] for name in stored.nodes}
    for pod in snapshot.pods:
        if pod.node in by_node and pod.status in ACTIVE_ALLOCATED:
            by_node[pod.node].append(pod)
    beside = stored.beside | {holder.key}
    for name, gpus in sorted(stored.nodes.items()):
        left = snapshot.nodes[snapshot.node_index[name]].allocatable[GPU] - round(gpus * MILLI)
        there = {pod.key: pod for pod in by_node[name] if _remains(times, pod, found, start)}
        keys = dict.fromkeys(pod.group for pod in there.values() if pod.group is not None)
        groups = (snapshot.group_by_key[key] for key in keys if key not in beside)
        in_the_way = (one for one in groups if one.preemptible and not outranks(one, holder))
        for one in sorted(in_the_way, key=lambda one: (-times.start(one), one.key)):
            for unit in _came_later(times, one, there, stored.made):
                if _milli_gpus(there.values()) <= left:
                    break
                going = Departure(start, holder.key, unit)
                found.update((pod.key, going) for pod in unit if _remains(times, pod, found, start))
                for pod in unit:
                    there.pop(pod.key, None)


def _remains(times: Times, pod: Pod, found: Mapping[PodKey, Departure], start: float) -> bool:
    """Whether the pod still runs at the start, unless this start evicts it."""
    leaves = found[pod.key].at if pod.key in found else NEVER
    return min(times.end(pod.group), leaves) > start


def _came_later(
    times: Times, group: PodGroup, there: Mapping[PodKey, Pod], made: float
) -> Sequence[tuple[Pod, ...]]:
    """The units that a group gives up on a node until none of its pods there came after ``made``; surplus on
    other nodes stays. A group that loses its minimum leaves as a whole."""
    found, needed = list[tuple[Pod, ...]](), 0
    for unit in Gang(group, times.snapshot.members[group.key]).units_at_first:
        here = [pod for pod in unit.pods if pod.key in there]
        if here or unit.whole:
            running = (pod for pod in times.snapshot.members[group.key] if pod.status in ACTIVE_ALLOCATED)
            found.append(tuple(running) if unit.whole else unit.pods)
        if here and times.entered(group, here) >= made:
            needed = len(found)
    return found[:needed]


def _milli_gpus(pods: Iterable[Pod]) -> int:
    """Milli-GPUs that the pods take of one node; a device that they share counts once, as a whole one."""
    own = [pod for pod in pods if not pod.reservation]
    return sum(pod.spec.requests[GPU] for pod in own) + MILLI * len({n for p in own for n in p.gpu_groups})
