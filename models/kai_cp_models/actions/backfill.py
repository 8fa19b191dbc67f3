"""Backfill: offer what a cycle's evictions leave free, first to its victims, then to others in fair order.

An eviction that frees more than is used is taken back, pod by pod where the gang allows it. What is idle then
is offered to all pod groups that wait and to those that were evicted, whatever refused them and whether they
may take from others or not: KAI's next allocate would give it to the first of them, a cycle later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain

from kai_cp_models.actions.asking import line_of, waiting_groups
from kai_cp_models.actions.eviction_plan import NOTHING_SUFFICES, OUT_OF_TIME
from kai_cp_models.actions.home import capacity_at_home, missing, put_back, return_home, start_now
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.admission import RefusalCache
from kai_cp_models.joint.problem import Ask, examples, further
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import quota_check, started
from kai_cp_models.pods import UNLIMITED, GroupKey, Pod, PodStatus
from kai_cp_models.policy import STATE_ACTIONS, TIME_ACTIONS, ActionName


def backfill(cycle: Cycle, action: ActionName) -> None:
    """Take back evictions that nothing needs, then offer what is idle; new places are those of ``action``.

    A victim that returns adds to its department. Where a trigger of reclaim of that department would then
    have taken more than it may from another one, no victim returns to it.
    """
    gone: frozenset[str] = frozenset()
    saved = cycle.save()
    while True:
        evicted = _evicted(cycle, gone)
        home = _come_home(cycle, evicted)
        given = _offer(cycle, action, evicted)
        # Groups that lost nothing take only idle capacity, so they change no reclaim.
        returned = home or not given.isdisjoint(evicted)
        beyond = cycle.overreaching(cycle.ledger) if returned else None
        more = frozenset() if beyond is None else frozenset(cycle.snapshot.queue_path[beyond.group.queue])
        if more <= gone:
            cycle.at_rest = not (home or given)
            _start(cycle)
            # Pods that run again where they ran were never evicted.
            for key in cycle.evicted_by.keys() - cycle.ledger.evicted.keys():
                del cycle.evicted_by[key]
                cycle.placed_by.pop(key, None)
            return
        gone |= more
        cycle.restore(saved)


def _start(cycle: Cycle) -> None:
    """Bind nominated pods whose places are idle now; groups that evictions name wait for these."""
    ledger, pods = cycle.ledger, cycle.snapshot.pod_by_key
    wait = ((pods[key], at) for key, (at, _, status) in ledger.held.items() if status is PodStatus.PIPELINED)
    # Most places are not idle yet; a share may be in its own way.
    idle = (pod for pod, at in wait if pod.spec.gpu.shares or ledger.view(pod).takes(ledger, at, now=True))
    groups = {pod.group for pod in idle if pod.group is not None}
    for group in sorted(groups.difference(*(one.triggers for one in cycle.evicted_by.values()))):
        start_now(ledger, group)


def _evicted(cycle: Cycle, gone: frozenset[str]) -> dict[GroupKey, list[Pod]]:
    """Pods that the cycle evicts for others, moved ones included, by pod group in task order.

    ``gone``: queues; victims below them are left out.
    """
    found: dict[GroupKey, list[Pod]] = {}
    ledger, paths, ended = cycle.ledger, cycle.snapshot.queue_path, _ended(cycle)
    for key, eviction in cycle.evicted_by.items():
        pod = cycle.snapshot.pod_by_key[key]
        if pod.group is None or pod.group in ended or eviction.action in TIME_ACTIONS:
            continue
        queue = cycle.snapshot.group_by_key[pod.group].queue
        if key in ledger.held or gone.isdisjoint(paths[queue]):
            found.setdefault(pod.group, []).append(pod)
    return {key: sorted(pods, key=lambda pod: pod.sort_key) for key, pods in found.items()}


def _ended(cycle: Cycle) -> set[GroupKey | None]:
    """Pod groups that are evicted for their own state: none of their pods returns in this cycle."""
    ended = (key for key, one in cycle.evicted_by.items() if one.action in STATE_ACTIONS)
    return {cycle.snapshot.pod_by_key[key].group for key in ended}


def _come_home(cycle: Cycle, evicted: Mapping[GroupKey, Sequence[Pod]]) -> bool:
    """Take back evictions that nothing needs; False: nothing changed."""
    ledger, held = cycle.ledger, cycle.ledger.held
    # Where no moved pod may leave, free capacity only shrinks.
    left = {held[pod.key].node for pods in evicted.values() for pod in pods if pod.key in held}
    evicted = {
        key: pods
        for key, pods in evicted.items()
        if any(pod.key in held or ledger.home(pod) in left or capacity_at_home(ledger, pod) for pod in pods)
    }
    asks = _asks_again(ledger, evicted)
    # Groups that lost pods come in the fair order, then those that only move.
    turns = (*iter(line_of(ledger, asks).pop, None), *sorted(evicted.keys() - asks.keys()))
    return any([return_home(ledger, key, evicted[key]) for key in turns])


def _asks_again(ledger: Ledger, evicted: Mapping[GroupKey, Sequence[Pod]]) -> dict[GroupKey, Ask]:
    return {key: ask for key, pods in evicted.items() if (ask := missing(ledger, key, pods)) is not None}


def _offer(cycle: Cycle, action: ActionName, evicted: Mapping[GroupKey, Sequence[Pod]]) -> Set[GroupKey]:
    """Give what is idle to pod groups that wait or were evicted, in fair order; returns which got something.

    Where moves are limited, no pod moves instead of being lost.
    """
    ledger = cycle.ledger
    limited = cycle.settings.objective.max_moved_gpus_per_admitted_gpu != UNLIMITED
    lost = {key: [pod for pod in pods if not ledger.stays(pod)] for key, pods in evicted.items()}
    victims = {key: pods for key, pods in lost.items() if pods and not limited}
    # A group beyond the depth limit of its queue is not looked at here either.
    waits, apart = waiting_groups(cycle, "allocate").items(), _ended(cycle) | victims.keys()
    looked_at = ((key, ask) for key, ask in waits if key in cycle.waiting or ledger.serves(ask.gang))
    asks = {key: ask for key, ask in looked_at if key not in apart}
    if "allocate" not in cycle.snapshot.policy.actions:
        # The other actions serve only groups for which they may evict: those that they searched for.
        searched = (NOTHING_SUFFICES.reason, OUT_OF_TIME.reason)
        waiting = cycle.waiting
        asks = {k: ask for k, ask in asks.items() if k in waiting and waiting[k].reason in searched}
    # Free capacity only shrinks here, as in allocate: a group that does not fit now never will.
    asking = {pod.spec: pod for pod in chain(examples(asks.values()), *victims.values())}
    roomy, given = list(filter(ledger.has_room, asking.values())), set[GroupKey]()
    if not roomy:
        return given
    asks |= _asks_again(ledger, victims)
    # Where one ask finds no place, no ask for as much or more finds one.
    order, refusals = line_of(ledger, asks), RefusalCache(ledger, None)
    while roomy and not cycle.budget.passed() and (key := order.pop()) is not None:
        ask, placed = asks[key], False
        if key in victims:
            placed = put_back(ledger, key, victims[key])
        elif refusals.find(ask) is None and not quota_check(ledger, ask, lending=True):
            if placed := started(ledger, ask):
                cycle.waiting.pop(key, None)
                if (more := further(ledger, ask)) is not None:
                    asks[key] = more
                    order.push(key, more.entry)
                    roomy += more.kind.shape.examples
            else:
                # Those that limits refuse are not among these: others may be within theirs.
                refusals.add(ask, OUT_OF_TIME)
        if placed:
            order.use(ledger.book, ask.group.queue)
            roomy = list(filter(ledger.has_room, roomy))
            given.add(key)
            here = (pod.key for pod in victims.get(key, ask.pods) if pod.key in ledger.held)
            cycle.placed_by |= dict.fromkeys(here, action)
    return given
