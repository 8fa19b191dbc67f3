"""Which pod group a fault is about: the one to leave out, so that one object never stops an action."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import Snapshot

if TYPE_CHECKING:  # the checker reads the rules, which say for which pod group they raise
    from kai_cp_models.check.planned_cluster import Violation

Asked = TypeVar("Asked", bound=Callable[..., Any])


def for_group(key_of: Callable[..., GroupKey | None]) -> Callable[[Asked], Asked]:
    """What the function raises says for which pod group: ``key_of`` the arguments; the innermost counts."""

    def decorated(function: Asked) -> Asked:
        @wraps(function)
        def asked(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except Exception as problem:
                problem.__dict__.setdefault("pod_group", key_of(*given, **named))
                raise

        return asked  # type: ignore[return-value]

    return decorated


def raised_for(problem: Exception) -> frozenset[GroupKey]:
    """The pod group for which a function ``for_group`` has raised; none: unknown."""
    key = problem.__dict__.get("pod_group")
    return frozenset(() if key is None else (key,))


def breaking(
    faults: Iterable[Violation],
    snapshot: Snapshot,
    plan: Plan,
    before: Plan,
    mended_without: Callable[[Collection[GroupKey]], bool],
) -> frozenset[GroupKey]:
    """The pod groups that break rules: those that got places, else those that are disturbed, else those that
    hold capacity again.

    ``plan`` is refused; ``before``: the plan that it was built on. ``mended_without``: whether the plan
    breaks none of these rules if some groups get no places; of several the first one pays with which it
    does. A fault of a node or a queue is that of a group that got its place there; one of nothing that is new
    means one that got any place. A moved victim got its place for its triggers.
    """
    known = {(d.kind, d.pod, d.node, d.action) for d in before.decisions}
    new = [
        d for d in plan.decisions if (d.kind, d.pod, d.node, d.action) not in known and d.group is not None
    ]
    served = [d for d in new if d.kind != "Evict"]
    faults = tuple(faults)

    def guilty(groups: Iterable[GroupKey | None]) -> list[GroupKey]:
        """The one that pays; all where it cannot be told which."""
        found = list(dict.fromkeys(key for key in groups if key is not None))
        if len(found) < 2 or not mended_without(found):
            return found
        # The plan is lawful without all of them, and no longer without those that come after this one.
        last = bisect_left(range(1, len(found)), True, key=lambda first: not mended_without(found[first:]))
        return [found[last]]

    pods, groups = {key for one in faults for key in one.pods}, {key for one in faults for key in one.groups}
    for part in (served, new):
        if found := guilty(d.group for d in part if d.group in groups or d.pod in pods):
            return frozenset(found)
    holding = [{one.group for one in each.reservations or ()} for each in (plan, before)]
    if held := groups & (holding[0] - holding[1]):
        return frozenset(held)
    nodes, queues = {one.node for one in faults}, {one.queue for one in faults}
    known_groups, paths = snapshot.group_by_key, snapshot.queue_path
    there = [d for d in served if d.node in nodes] or [
        d
        for d in served
        if d.group in known_groups and queues & set(paths.get(known_groups[d.group].queue, ()))
    ]
    moved_for = {d.pod: d.triggers for d in plan.decisions if d.kind == "Evict" and d.triggers}
    last = there or served or new
    return frozenset(guilty(key for d in last for key in moved_for.get(d.pod, (d.group,)))[-1:])
