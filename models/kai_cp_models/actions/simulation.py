"""An eviction plan simulated as KAI would carry it out (4.7): evict, then place again in the fair order.

A plan is refused when a victim comes before the trigger in the fair order of the state after the eviction: it
would take its place back in the next cycle (formulation 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from math import inf
from operator import attrgetter

from kai_cp_models.actions.home import come_home, has_room_at_home
from kai_cp_models.actions.locality import draw_together
from kai_cp_models.fairness.amounts import NOTHING
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.joint.problem import Answer, Ask, EvictionUnit, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, disaggregate, quota_check
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, UNLIMITED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.units import Gang, StatusOf, giving, satisfied


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
        if alone and _all_left(ledger, key, pods):
            # Sizes decide no turn inside one queue, so the ask is made only if its turn comes.
            turns[key] = group_sort_key(group, 0), NOTHING
            continue
        holds = highest.get(group.queue, inf) <= group.priority
        ask = missing(ledger, key, pods, promises=holds)
        # A victim that limits refuse once it has left does not come back.
        if ask is not None and quota_check(ledger, ask) is None:
            turns[key] = ask.entry
    return turns


def nominated(ledger: Ledger, ask: Ask) -> bool:
    """Promise the ask a place within what its queue may hold; False: it has none, and nothing changed."""
    if not all(map(ledger.has_room, ask.kind.shape.examples)) or quota_check(ledger, ask) is not None:
        return False
    return started(ledger, ask)


def started(ledger: Ledger, ask: Ask) -> bool:
    """Promise the ask places that complete its gang's minimum; False: there are none, nothing changed."""
    ledger.mark()
    placed = Placer(ask.gang, pipeline_only=True).place(ledger, ask.batch) is None
    return ledger.close(kept=placed and ledger.state(ask.gang).satisfied)


def missing(ledger: Ledger, key: GroupKey, pods: Sequence[Pod], *, promises: bool = True) -> Ask | None:
    """The ask with which a group gets evicted pods back in the fair order; ``promises``: see ``ask_of``."""
    gang = ledger.fixed.gangs[key]
    # Most victims have got no place when this is needed.
    whole = _all_left(ledger, key, pods)
    state = gang.stopped if whole else gang.state(as_pending(ledger, {pod.key for pod in pods}))
    return None if state.batch is None else ask_of(ledger, gang, state.batch, state, promises=promises)


def _all_left(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Whether these evicted pods are all of the group that ran, and nothing else of it has changed."""
    running = sum(pod.status in ACTIVE_ALLOCATED for pod in ledger.fixed.gangs[key].pods)
    return len(pods) == ledger.touched.get(key) == running and all(p.key in ledger.evicted for p in pods)


def as_pending(ledger: Ledger, evicted: Container[PodKey]) -> StatusOf:
    """Pod statuses in which the group's evicted pods, and no others, wait."""

    def status_of(pod: Pod) -> PodStatus:
        status = ledger.status(pod)
        if pod.key in evicted:
            return status if ledger.stays(pod) else PodStatus.PENDING
        return PodStatus.GATED if status is PodStatus.PENDING else status

    return status_of


def put_back(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Give as many of a group's evicted pods places again as fit, at home if they can; False: none."""
    home = bool(return_home(ledger, key, pods))
    return put_elsewhere(ledger, key, pods) or home


def put_elsewhere(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Give a group's evicted pods new places, batch by batch, and let others come home after each; False:
    none has a place."""
    moved = False
    if not any(map(ledger.has_room, pods)):
        return moved
    # A gang that ran below its minimum does not start below it again elsewhere.
    while (ask := missing(ledger, key, pods)) is not None and nominated(ledger, ask):
        moved = True
        return_home(ledger, key, pods)
    return moved


def return_home(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> list[Pod]:
    """Let the evicted pods of a group run again where they ran, if they have room there, and return these:
    first pods that have another place now, one by one; of the others as many as the gang allows.
    """
    gang = ledger.fixed.gangs[key]
    found = [pod for pod in pods if pod.key in ledger.held and come_home(ledger, [pod])]
    lost = (pod for pod in pods if not ledger.stays(pod))
    left: dict[PodKey, Pod] = {}
    away: set[tuple[str, str | None]] = set()
    for pod in sorted(lost, key=attrgetter("sort_key")):
        # The last pod leaves first (5.4), so once one of these stays away, all later ones do.
        if _place(pod) in away or not has_room_at_home(ledger, pod):
            away.add(_place(pod))
        else:
            left[pod.key] = pod
    if not left:
        return found
    status_of = as_pending(ledger, left)
    tally = gang.tally(status_of)

    def settle(pods: Iterable[Pod]) -> None:
        """Ask for these no more: they are home, or stay away."""
        nonlocal tally
        for pod in pods:
            del left[pod.key]
            tally = gang.moved(tally, pod.subgroup or "default", PodStatus.PENDING, status_of(pod))

    while left:
        batch = gang.state(status_of, tally).batch
        together = _of_one_set(ledger, gang, list(left.values())) if batch is None else batch.all_pods
        if not together:
            break
        ledger.mark()
        home = come_home(ledger, together)
        torn = gang.at_first.satisfied and not ledger.state(gang).satisfied
        # The other pods of the gang have no place, or a member that leaves after these has none.
        in_vain = home and (torn or _out_of_turn(ledger, gang))
        if not ledger.close(kept=not in_vain):
            break
        if home:
            found += together
            settle(together)
        else:
            # Where they do not fit together, the others may without the last of them.
            last = together[-1]
            place, turn = _place(last), last.sort_key
            settle([pod for pod in left.values() if _place(pod) == place and pod.sort_key >= turn])
    return found


def _of_one_set(ledger: Ledger, gang: Gang, pods: Sequence[Pod]) -> Sequence[Pod]:
    """The next pods to come home of those in no batch. Of a pod set that had its minimum, all that it lacks,
    or one of its surplus; of another, one; of a subgroup, those of as many children as it lacks.
    """
    before, now = gang.at_first.tally.met, ledger.tally(gang).met

    def next_of(part: Subgroup) -> Sequence[Pod]:
        if part.leaf:
            mine = [pod for pod in pods if (pod.subgroup or "default") == part.name]
            count = max(part.minimum - now[part.name], 1) if satisfied(part, before) else 1
            return mine[:count] if len(mine) >= count else ()
        away = [child for child in part.children if not satisfied(child, now)]
        lacks = part.minimum - len(part.children) + len(away)
        if lacks <= 0 or not satisfied(part, before):
            return next(filter(None, map(next_of, part.children)), ())
        found = [some for child in away if satisfied(child, before) and (some := next_of(child))][:lacks]
        return [pod for some in found for pod in some] if len(found) == lacks else ()

    return next_of(gang.top)


def _place(pod: Pod) -> tuple[str, str | None]:
    """Pod set and node of a running pod: of pods that share both, the last in task order leaves first."""
    return pod.subgroup or "default", pod.node


def _out_of_turn(ledger: Ledger, gang: Gang) -> bool:
    """Whether a pod set has lost its minimum while another keeps surplus pods, which leave first (5.4)."""
    before, after = gang.at_first.tally.met, ledger.tally(gang).met
    dropped = any(before[one.name] >= one.minimum > after[one.name] for one in gang.top.leaves())
    return dropped and any(after[one.name] > one.minimum for one in giving(gang.top, after))


def settle_moves(ledger: Ledger, gone: Sequence[Pod]) -> None:
    """A victim that returned to its own node and devices counts as never evicted (4.7)."""
    placed = [pod for pod in gone if pod.key in ledger.held]
    for pod in placed:
        held = ledger.held[pod.key]
        home = held.node, set(held.gpu_groups)
        if pod.status in ACTIVE_USED and home == (ledger.home(pod), set(pod.gpu_groups)):
            ledger.unplace(pod)
            ledger.unevict(pod)
    for key in dict.fromkeys(pod.group for pod in gone if pod.group is not None):
        start_now(ledger, key)


def start_now(ledger: Ledger, key: GroupKey) -> None:
    """Bind the pods of a group whose places of this cycle are idle now. A gang whose needed pods wait, or
    leave, starts together (4.2)."""
    gang = ledger.fixed.gangs[key]
    given = [pod for pod in gang.pods if pod.key in ledger.held]
    for pod in (pod for pod in given if pod.status is PodStatus.PENDING):
        node, names, _ = ledger.held[pod.key]
        ledger.unplace(pod)
        ledger.place(pod, node, names, pipelined=not ledger.fits_on(pod, node, now=True))
    if given:
        Placer(gang).start_together(ledger, given)
