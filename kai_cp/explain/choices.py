"""Tries every small choice of pods to stop or to move, to prove that less does not help where no model can.

The model of a fix assumes that the cycle does the same for other waiting pod groups. If some wait, another
choice may change that, so all smaller choices are tried while they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count, islice
from typing import Final

from kai_cp.explain.cycle import DecidedCycle
from kai_cp.explain.trials import Fix, FixCandidate, Spent, Trials
from kai_cp.json_types import Object
from kai_cp_models.pods import ACTIVE_ALLOCATED, Pod
from kai_cp_models.queries.why import eviction_units, has_devices, new_places
from kai_cp_models.snapshot import Snapshot, Subgroup

_MOST_CHOICES: Final = 64
"""The most choices that are tried."""
_MOST_STEPS: Final = 100_000
"""The most steps of an enumeration of pods to stop, about 0.1 s."""
MOST_LOOKS: Final = 128
"""The most searches over all nodes for pods to move, about 1 s at 1,000 nodes."""

BySize = Callable[[Trials, int], Iterator[FixCandidate]]
"""All choices of a given number of pods."""


class TooMany(Exception):
    """There are more choices than an enumeration may try."""


def _counted(most: int) -> Callable[[], None]:
    """A step of an enumeration; raises ``TooMany`` after ``most`` of them."""
    steps = count(1)

    def step() -> None:
        if next(steps) > most:
            raise TooMany

    return step


def others_wait(trials: Trials) -> bool:
    """Whether another pod group may get what a change leaves free."""
    return any(group.key != trials.key for group in trials.snapshot.waiting_groups)


def least_of(
    trials: Trials,
    found: Fix | None,
    choices: BySize,
    takes: Callable[[DecidedCycle], bool],
    *,
    every: bool = True,
) -> Fix | None:
    """``found``, or a choice of fewer pods that helps; proved if every smaller choice was tried.

    ``takes``: whether a cycle that admits the group counts. ``every``: ``choices`` leaves none out. Raises
    ``Spent`` while nothing is known yet.
    """
    left = _MOST_CHOICES
    pods = sum(pod.status in ACTIVE_ALLOCATED for pod in trials.snapshot.pods)
    for size in range(1, pods + 1):
        if found is not None and size >= found.amount:
            return replace(found, proved=every or found.amount == 1)
        try:
            some = list(islice(choices(trials, size), left + 1))
        except TooMany:
            return found
        if len(some) > left:
            return found
        left -= len(some)
        for choice in some:
            try:
                decided = trials.admits(choice.ops)
            except Spent:
                if found is None:
                    raise
                return found
            if decided is not None and takes(decided):
                kind = str(choice.ops[0]["op"])
                return Fix(kind, choice.amount, "pods", choice.ops, every or size == 1, decided)
    return found


def stops(
    trials: Trials, size: int, worth: Callable[[Sequence[Pod]], bool] = lambda pods: True
) -> Iterator[FixCandidate]:
    """Choices of whole eviction units (5.4), each with the units of its pod group that leave before it.

    ``worth``: whether a choice may help.
    """
    groups = (group.key for group in trials.snapshot.groups if group.key not in trials.asked)
    chains = [eviction_units(trials.situation, key) for key in groups]
    step = _counted(_MOST_STEPS)

    def chosen(first: int, left: int) -> Iterator[tuple[Pod, ...]]:
        """Choices of ``left`` pods from the chains from ``first`` on; those of later chains come first."""
        if not left:
            yield ()
        for i in reversed(range(first, len(chains) if left else first)):
            pods: tuple[Pod, ...] = ()
            for unit in chains[i]:
                step()
                pods = (*pods, *unit)
                if len(pods) > left:
                    break
                for rest in chosen(i + 1, left - len(pods)):
                    yield (*pods, *rest)

    for pods in filter(worth, chosen(0, size)):
        yield FixCandidate(({"op": "stop", "pods": sorted(str(pod.key) for pod in pods)},), size)


def moves(trials: Trials, size: int) -> Iterator[FixCandidate]:
    """Choices of running pods, each with another node that takes it."""
    going = [pod for pod in _running(trials) if _plain(trials, pod)]
    look = _counted(MOST_LOOKS)
    for pods in combinations(going, size):
        for nodes in new_places(trials.situation, pods, look):
            yield FixCandidate((move_operation(trials.snapshot, pods, nodes),), size)


def all_plain(trials: Trials) -> bool:
    """Whether moves are proposed for every running pod."""
    return all(_plain(trials, pod) for pod in _running(trials))


def _running(trials: Trials) -> list[Pod]:
    """Pods of other pod groups that run."""
    return [
        pod
        for pod in trials.snapshot.pods
        if pod.group is not None
        and pod.group not in trials.asked
        and pod.node is not None
        and pod.status in ACTIVE_ALLOCATED
    ]


def _plain(trials: Trials, pod: Pod) -> bool:
    """Whether a pod holds only plain capacity on its node and may run on any node."""
    assert pod.group is not None
    root = trials.snapshot.group_by_key[pod.group].root
    return not has_devices(trials.situation, pod) and not _bound_to_domain(root)


def move_operation(snapshot: Snapshot, pods: Sequence[Pod], nodes: Sequence[int]) -> Object:
    """The operation that moves pods to nodes, by position."""
    pairs = zip(pods, nodes, strict=True)
    names = snapshot.nodes
    return {"op": "move", "moves": [{"pod": str(pod.key), "node": names[n].name} for pod, n in pairs]}


def _bound_to_domain(part: Subgroup) -> bool:
    """Whether a pod set below ``part`` must stay in the domain that it is in."""
    required = part.constraint is not None and bool(part.constraint.required)
    return required or any(_bound_to_domain(child) for child in part.children)
