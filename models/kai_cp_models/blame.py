"""Which pod group a fault is about: the one to leave out, so that one object never stops an action."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType

from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.plan import Decision
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Gang

_NAMES = re.compile(r"[^\s,:;()']+")


def raised_for(problem: BaseException) -> GroupKey | None:
    """The pod group that the code worked on when it raised, taken from its innermost frames; None:
    unknown."""
    frames: list[TracebackType] = []
    here = problem.__traceback__
    while here is not None:
        frames.append(here)
        here = here.tb_next
    for frame in reversed(frames):
        for value in frame.tb_frame.f_locals.values():
            found = _group_of(value)
            if found is not None:
                return found
    return None


def _group_of(value: object) -> GroupKey | None:
    if isinstance(value, Pod):
        return value.group
    if isinstance(value, PodGroup):
        return value.key
    if isinstance(value, (Ask, EvictionUnit, Gang)):
        return value.group.key
    return None


def named_in(
    faults: Iterable[str], snapshot: Snapshot, decisions: Sequence[Decision], before: Sequence[Decision]
) -> frozenset[GroupKey]:
    """The pod groups that the checker's sentences name: those that got places, else those that are disturbed.

    ``decisions``: the refused plan; ``before``: the plan that it was built on. A sentence about a node or a
    queue means the group that got its place there last; a sentence about nothing known means the group that
    got the last place of all.
    """
    known = {(d.kind, d.pod, d.node, d.action) for d in before}
    new = [d for d in decisions if (d.kind, d.pod, d.node, d.action) not in known and d.group is not None]
    served = [d for d in new if d.kind != "Evict"]
    names: set[str] = set()
    for fault in faults:
        names.update(part.strip('."') for part in _NAMES.findall(fault))
    for part in (served, new):
        found = {d.group for d in part if str(d.group) in names or str(d.pod) in names}
        if found:
            return frozenset(key for key in found if key is not None)
    there = [d for d in served if d.node in names] or [
        d for d in served if d.group is not None and snapshot.group_by_key[d.group].queue in names
    ]
    last = (there or served or new)[-1:]
    return frozenset(d.group for d in last if d.group is not None)
