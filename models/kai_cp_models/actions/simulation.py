"""An eviction plan simulated as KAI would carry it out (4.7): evict, then place again in the fair order.

A plan is refused when a victim comes before the trigger in the fair order of the state after the eviction: it
would take its place back in the next cycle (formulation 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from math import inf

from kai_cp_models.actions.home import all_left, missing, put_back, put_elsewhere, return_home, settle_moves
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.fairness.amounts import NOTHING
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import disaggregate, nominated, quota_check
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, UNLIMITED, GroupKey, Pod


@dataclass(frozen=True, slots=True)
class Simulated:
    """The ledger after the plan; None when the plan does not hold.

    ``early``: evicted groups that came back before a trigger, as the fair order after the eviction puts them
    first, or that left only for one without a right to them. ``served``: the asks that may have a place.
    """

    ledger: Ledger | None
    early: frozenset[GroupKey] = frozenset()
    served: frozenset[GroupKey] = frozenset()


def simulate(
    base: Ledger,
    units: Sequence[EvictionUnit],
    answer: Answer,
    line: FairOrder,
    *,
    lost_to: Mapping[GroupKey, Set[GroupKey]] | None = None,
    allowed: Callable[[Ledger], bool] = lambda _: True,
) -> Simulated:
    """Evict what the answer names, then place asks and victims in the fair order, greedily.

    ``lost_to``: the triggers that a victim's units were lost to. Each trigger is compared with its own
    victims only (4.7), so a victim comes after the other triggers once its own have their places.

    If the greedy placement leaves out an ask although all victims come after the asks, or moves more than is
    ``allowed``, the model's own places are used (formulation 1.4).
    """
    gone, placed, victims = answer.gone, answer.asks, dict[GroupKey, list[Pod]]()
    for pod in gone:
        if pod.group is not None:
            victims.setdefault(pod.group, []).append(pod)
    replayed = _replay(base.without(gone), placed, victims, line, lost_to or {})
    simulated = replayed.ledger
    if simulated is not None and allowed(simulated):
        moved = {simulated.status(pod) for pod in gone if pod.key in answer.moved}
        # Where a pod that should move would be lost, the model's own places keep it.
        if moved <= ACTIVE_ALLOCATED:
            return replayed
    if any(yes and one.group.key in replayed.early for one, yes in zip(units, answer.lost, strict=True)):
        return Simulated(None, replayed.early, replayed.served)
    made = disaggregate(base, answer, pipeline_only=True)
    if made is not None:
        bare = partial(made.without, [pod for ask in placed for pod in ask.pods])
        drawn = draw_together(placed, made, bare, pipeline_only=True)
        made = drawn if allowed(drawn) else made
        settle_moves(made, gone)
    return Simulated(made if made is None or made.upheld() else None)


def simulate_all(
    base: Ledger,
    asks: Sequence[Ask],
    units: Sequence[EvictionUnit],
    line: FairOrder,
    late: Callable[[], bool],
) -> Simulated:
    """Evict all of ``units`` that the rules let go, then place asks and victims in the fair order (4.7).

    There is a ledger as soon as one ask got a place. ``late``: whether the deadline has passed, after which
    no more asks are placed.
    """
    emptied, victims = base.copy(), dict[GroupKey, list[Pod]]()
    _let_go(emptied, units, victims)
    return _replay(emptied, asks, victims, line, {}, some=True, late=late)


def in_the_way(
    base: Ledger, asks: Sequence[Ask], units: Sequence[EvictionUnit], depths: Iterable[int]
) -> Iterator[list[EvictionUnit]]:
    """For every depth: as many first units leave, asks that find a place get one, and the units that then
    cannot come home are returned; none if no ask finds a place. The last units come home first, because the
    first leave first. ``depths`` grow.
    """
    if all(pod.key in base.held for unit in units for pod in unit.pods):
        # What has come in this cycle has no home.
        return
    emptied, victims, last = base.copy(), dict[GroupKey, list[Pod]](), 0
    for depth in depths:
        _let_go(emptied, units[last:depth], victims)
        last = depth
        emptied.mark()
        near = dict[GroupKey, Sequence[Pod]]()
        if any([nominated(emptied, ask) for ask in asks]):
            near = disturbed(base, emptied, victims)
        for key in reversed(near):
            return_home(emptied, key, near[key])
        away = (unit for unit in units[:depth] if unit.group.key in near)
        yield [unit for unit in away if not all(map(emptied.stays, unit.pods))]
        emptied.close(kept=False)


def disturbed(
    base: Ledger, emptied: Ledger, victims: Mapping[GroupKey, Sequence[Pod]]
) -> dict[GroupKey, Sequence[Pod]]:
    """The groups of ``victims`` with a pod that may find no room at home. For all others nothing has changed
    on their nodes, in their queues or for any rule, and they are in no other group's way at home.
    """
    book, limited = emptied.book, dict[str, bool]()
    for queue in {emptied.snapshot.group_by_key[key].queue for key in victims}:
        line = [book.limit[i] for i in book.line(queue) if book.entered.get(i)]
        limited[queue] = any(most != UNLIMITED for bounds in line for most in bounds)
    running, groups, rules = base.fixed.running.plain, emptied.snapshot.group_by_key, base.rules

    def plain(key: GroupKey, pods: Sequence[Pod]) -> bool:
        """Whether all pods of a group with one pod set and its minimum have left, and only in this trial."""
        return (
            len(pods) == emptied.touched.get(key) == running.get(key)
            and key not in base.touched
            and not limited[groups[key].queue]
            and not (rules and any(rule.concerns(pod) for rule in rules for pod in pods))
        )

    other = {key: pods for key, pods in victims.items() if not plain(key, pods)}
    watched = {held.node for key, held in emptied.held.items() if held != base.held.get(key)}
    watched.update(base.home(pod) for pods in other.values() for pod in pods if pod.status in ACTIVE_USED)
    taken = watched.union(filter(emptied.come.get, emptied.come))
    named = {base.snapshot.nodes[node].name: node for node in taken}

    def free(pod: Pod) -> bool:
        if (node := named.get(pod.node or "")) is None:
            return True
        return node not in watched and not pod.spec.gpu.shares and min(base.room.free_on[node]) >= 0

    return {key: pods for key, pods in victims.items() if key in other or not all(map(free, pods))}


def _let_go(emptied: Ledger, units: Sequence[EvictionUnit], gone: dict[GroupKey, list[Pod]]) -> None:
    """Let all units leave that the rules let go; ``gone``: the pods that left, by pod group."""
    for simple, some in groupby(units, key=lambda unit: all(map(emptied.simple, unit.pods))):
        left = [unit for unit in some if simple or emptied.let_go(unit.pods)]
        for unit in left:
            gone.setdefault(unit.group.key, []).extend(unit.pods)
        if simple:
            emptied.evict_all([pod for unit in left for pod in unit.pods])


def _replay(
    ledger: Ledger,
    asks: Sequence[Ask],
    victims: Mapping[GroupKey, Sequence[Pod]],
    line: FairOrder,
    lost_to: Mapping[GroupKey, Set[GroupKey]],
    *,
    some: bool = False,
    late: Callable[[], bool] = lambda: False,
) -> Simulated:
    """Place everything in the fair order; no ledger when an ask found no place, or took something on which a
    place of this cycle relies.

    ``ledger``: without ``victims``; the caller must not use it again. ``line``: of all asks. ``some``: no
    ledger only when no ask found a place. ``late``: see ``simulate_all``.
    """
    wanted = {ask.group.key: ask for ask in asks}
    groups = ledger.snapshot.group_by_key
    turns = _turns(ledger, asks, {key: pods for key, pods in victims.items() if key not in wanted})
    coming = set(wanted) | set(victims)
    order = line.thinned(coming).fork(ledger.book, also=turns)
    left = set(wanted)
    served: set[GroupKey] = set()
    early: set[GroupKey] = set()
    last: list[GroupKey] = []
    while coming and not late() and (key := order.pop(coming)) is not None:
        coming.discard(key)
        queue = groups[key].queue
        if key in wanted:
            left.discard(key)
            if nominated(ledger, wanted[key]):
                served.add(key)
                order.use(ledger.book, queue)
        elif not left or key not in turns or (key in lost_to and lost_to[key] <= served):
            last.append(key)
        elif put_back(ledger, key, victims[key]):
            early |= {key} if left and len(served) + len(left) == len(wanted) else set()
            order.use(ledger.book, queue)
    outcome = Simulated(None, frozenset(early), frozenset(served))
    if not served or (len(served) < len(wanted) and not some):
        return outcome
    last += sorted(coming & victims.keys())
    # Pods that can stay where they are get their places before others look for new ones.
    for key in last:
        return_home(ledger, key, victims[key])
    for key in last:
        put_elsewhere(ledger, key, victims[key])
    if not ledger.upheld():
        return outcome
    settle_moves(ledger, list(chain.from_iterable(victims.values())))
    return replace(outcome, ledger=ledger)


def _turns(
    ledger: Ledger, asks: Sequence[Ask], victims: Mapping[GroupKey, Sequence[Pod]]
) -> dict[GroupKey, Entry]:
    """The entries of evicted groups in the fair order, without those that limits refuse."""
    # A promise does not hold against a higher priority in its queue, nor against those that may reclaim it.
    highest = dict(sorted((ask.group.queue, ask.group.priority) for ask in asks))
    groups, turns = ledger.snapshot.group_by_key, dict[GroupKey, Entry]()
    alone = len(highest.keys() | {groups[key].queue for key in victims}) == 1
    for key, pods in victims.items():
        group = groups[key]
        if alone and all_left(ledger, key, pods):
            # Sizes decide no turn inside one queue, so the ask is made only if its turn comes.
            turns[key] = group_sort_key(group, 0), NOTHING
            continue
        holds = highest.get(group.queue, inf) <= group.priority
        ask = missing(ledger, key, pods, promises=holds)
        # A victim that limits refuse once it has left does not come back.
        if ask is not None and quota_check(ledger, ask) is None:
            turns[key] = ask.entry
    return turns
