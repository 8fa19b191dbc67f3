"""Fixes: the least change of every kind that admits a waiting pod group, each applied and solved again.

The blocking sets exclude what cannot help: a kind has to relax a member of each of them. The other kinds are
tried in the declared order of cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from kai_cp.decisions import rfc3339
from kai_cp.explain.choices import others_wait
from kai_cp.explain.disturb import add_nodes, move, shapes, stop
from kai_cp.explain.draft import BadOperation
from kai_cp.explain.kinds import (
    asks_alike,
    drop_selector,
    enable_action,
    raise_priority,
    reduce_gang,
    reduce_request,
    relax_topology,
    repair,
    repairs,
    tolerate,
    uncordon,
)
from kai_cp.explain.operations import QUEUE_RESOURCES
from kai_cp.explain.raises import SHARES, raise_limit, raise_quota
from kai_cp.explain.sentences import words
from kai_cp.explain.start import Start
from kai_cp.explain.trials import Fix, Listing, Spent, Trials
from kai_cp.json_types import Object
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.queries.why import (
    ALL_SECONDS,
    DEVICE_RULES,
    VICTIM_RULES,
    Families,
    blocking_of,
    kind_of,
    lasting,
)
from kai_cp_models.settings import FIX_KINDS

_SIZE: Final = frozenset(("room", "fragmentation", "topology", "limit", "quota", "fair-share", "order"))
_PLACES: Final = DEVICE_RULES | {"fragmentation", "topology"}
RELAXES: Final[Mapping[str, frozenset[str]]] = {
    "repair": frozenset(("queue", "readiness", "backoff", "dependency")),
    "wait": VICTIM_RULES,
    "uncordon": frozenset(("node-condition", "taint")) | SHARES,
    "enable-action": frozenset(("action",)),
    "move": _PLACES | {"selector", "taint", "node-condition", "gpu-kind", "worker"},
    "stop": VICTIM_RULES,
    "raise-limit": frozenset(("limit",)) | SHARES,
    "raise-quota": frozenset(("quota",)) | SHARES,
    "raise-priority": frozenset(("priority", "order")),
    "relax-topology": frozenset(("topology",)),
    "add-nodes": _PLACES | {"room", "node-condition"} | SHARES,
    "reduce-gang": DEVICE_RULES | _SIZE | {"readiness"},
    "reduce-request": _SIZE | {"numa", "selector", "taint"},
    "tolerate": frozenset(("taint",)),
    "drop-selector": frozenset(("selector",)),
}
"""Families that a kind can relax; the kind does not help against a blocking set without any of them."""

_FIND: Final[Mapping[str, Callable[[Trials], Fix | None]]] = {
    "repair": repair,
    "uncordon": uncordon,
    "enable-action": enable_action,
    "move": move,
    "stop": stop,
    "raise-limit": raise_limit,
    "raise-quota": raise_quota,
    "raise-priority": raise_priority,
    "relax-topology": relax_topology,
    "add-nodes": add_nodes,
    "reduce-gang": reduce_gang,
    "reduce-request": reduce_request,
    "tolerate": tolerate,
    "drop-selector": drop_selector,
}
_SEARCHING: Final = frozenset(("move", "stop", "raise-limit", "raise-quota", "reduce-request"))
_PART: Final = 0.5
"""Share of the remaining work that a kind with many candidates may take, so that later kinds get their
turn."""
_PROPOSED: Final = frozenset(("move", "stop"))
"""Kinds for which a model proposes the changes."""
_PART_OF_A_PAIR: Final = 0.25
"""The same for two kinds together if a model proposes one of them."""
_PART_OF_A_SECOND_PAIR: Final = 0.1
"""The same where a pair is known, which it could only replace by a cheaper one."""
_ALONE: Final = frozenset(("wait", "combined", "enable-action"))
"""Kinds that are not combined with others."""


@dataclass
class Fixes:
    """The changes that help, in the order of cost, and those that do not, with one sentence each."""

    found: list[Fix] = field(default_factory=list)
    none: list[Object] = field(default_factory=list)

    def add(self, kind: str, fix: Fix | None, because: str) -> None:
        """Take a fix, or the reason why there is none."""
        if fix is not None:
            self.found.append(fix)
        else:
            self.none.append({"kind": kind, "because": because})


def fixes_of(
    trials: Trials, start: Start, kinds: Sequence[str] = FIX_KINDS, *, cheapest: bool = False
) -> Fixes:
    """The least fix of every kind, in the order of ``kinds``; ``cheapest``: of the first that has one."""
    result = Fixes()
    for kind in kinds:
        if cheapest and result.found:
            return result
        if kind == "combined":
            continue
        left = wall(trials, kind)
        limit = _limit_in_the_way(trials, kind)
        if left is not None:
            result.add(kind, None, f"it does not help against: {words(left)}")
        elif limit is not None:
            result.add(
                kind, None, f"while others keep what they get, it does not help against: {words(limit)}"
            )
        elif kind == "wait":
            result.add(
                kind,
                _wait(trials, start),
                start.because if start.tried else f"not tried: {trials.cycles.over()}",
            )
        else:
            try:
                with _part(trials, _PART if kind in _SEARCHING else 1.0):
                    fix = _FIND[kind](trials)
                    result.add(kind, fix, "" if fix is not None else _tried(kind, trials))
            except Spent as spent:
                result.add(kind, None, f"not tried: {spent}")
    if "combined" in kinds:
        _combined(trials, result, kinds)
    result.found.sort(key=lambda fix: kinds.index(fix.kind))
    return result


def _part(trials: Trials, share: float) -> AbstractContextManager[None]:
    """Let trials do no more than ``share`` of the work left."""
    work = trials.cycles.work
    return work.at_most(share * max(0.0, work.left))


def in_the_way(sets: Sequence[Families], kind: str) -> Families | None:
    """The first blocking set of which the kind relaxes nothing.

    A set that blocks even if all other pods may be evicted blocks whatever is moved, unless the pod depends
    on where others are.
    """

    def blocks(families: Families) -> bool:
        kinds = {kind_of(family) for family in families}
        stays = kind == "move" and not kinds & (VICTIM_RULES | DEVICE_RULES)
        return stays or not kinds & RELAXES[kind]

    return next(filter(blocks, sets), None)


def wall(trials: Trials, kind: str) -> Families | None:
    """A blocking set that the kind cannot change, neither for the group nor through what others get.

    If others wait, a plan that gives the group a place may give them other places or take other victims.
    """
    sets: Sequence[Families] = trials.blocking.sets if trials.blocking.proved else ()
    if others_wait(trials):
        sets = lasting(trials.situation, trials.group, sets)
    return in_the_way(sets, kind)


def _limit_in_the_way(trials: Trials, kind: str) -> Families | None:
    """A blocking set with a limit of a queue, of which the kind relaxes nothing.

    A limit counts what its queue holds on any node. A kind that leaves the limit alone could help only if
    other pod groups of the queue get less for it, which is not worth a cycle for each candidate.
    """
    sets = trials.blocking.sets if trials.blocking.proved else ()
    return in_the_way([s for s in sets if any(kind_of(f) == "limit" for f in s)], kind)


def _wait(trials: Trials, start: Start) -> Fix | None:
    if start.at is None or start.decided is None:
        return None
    op = {"op": "at", "now": rfc3339(start.at)}
    seconds = round(start.at - trials.snapshot.now, 6)
    amount = int(seconds) if seconds == int(seconds) else seconds
    return Fix("wait", amount, "seconds", (op,), True, start.decided)


def _tried(kind: str, trials: Trials) -> str:
    """Why nothing of a kind was found although it could have helped."""
    group = trials.group
    limited = any(kind_of(family) == "limit" for one in trials.blocking.sets for family in one)
    sentences = {
        "uncordon": "no node is cordoned or tainted whose return would be enough",
        "enable-action": "no action that is switched off would find a plan",
        "move": "no moves to free capacity that were tried would be enough",
        "stop": "no set of running pods that was tried would free enough",
        "raise-limit": "no higher limit alone would be enough" if limited else "no limit blocks it",
        "raise-quota": "no quota that was tried would be enough",
        "raise-priority": "no priority up to the highest class plus one would be enough",
        "relax-topology": "no wider level would be enough",
        "add-nodes": f"no number of copies of any of the {len(shapes(trials))} kinds of nodes helps",
        "reduce-gang": "no smaller minimum would be enough",
        "reduce-request": "no smaller request of GPUs would be enough"
        if asks_alike(trials)
        else "its pods do not all ask for the same number of GPUs, or share of one",
        "tolerate": "no taint that it could tolerate would be enough",
        "drop-selector": "no node selector that it could give up would be enough",
        "repair": f"nothing that {group.key} lacks can be repaired from here",
    }
    return sentences[kind]


def _combined(trials: Trials, result: Fixes, kinds: Sequence[str]) -> None:
    """Two kinds together: when none helps alone, or beside a stop where there are two blockers."""
    alone = {fix.kind for fix in result.found}
    sets = trials.blocking.sets
    if alone and not ("stop" in alone and alone <= {"stop", "wait", "move"} and len(sets) > 1):
        return
    pairs, late = _Pairs(trials), ""
    open_ = [k for k in kinds if k not in alone and k not in _ALONE]
    open_ = [k for k in open_ if k in _PROPOSED or any(True for _ in _plenty(trials, k))]
    best: tuple[int, Fix] | None = None
    # A model's proposals take many cycles, so they come last; a cheaper pair with one of them replaces the
    # pair found before.
    order = sorted((not _PROPOSED.isdisjoint(pair), i, pair) for i, pair in enumerate(combinations(open_, 2)))
    for proposed, rank, pair in order:
        reach = RELAXES[pair[0]] | RELAXES[pair[1]]
        blocked = not all(any(kind_of(f) in reach for f in s) for s in sets)
        if blocked or (best is not None and best[0] < rank):
            continue
        share = _PART_OF_A_PAIR if best is None else _PART_OF_A_SECOND_PAIR
        try:
            with _part(trials, share if proposed else _PART):
                fix = pairs.least(*pair)
        except Spent as spent:
            late = str(spent)
            continue
        best = (rank, fix) if fix is not None else best
    if best is not None:
        result.found.append(best[1])
        return
    because = f"not tried: {late}" if late else "no two kinds together that were tried help"
    result.none.append({"kind": "combined", "because": because})


class _Pairs:
    """Two kinds together. ``_left``: by kind, operations that do as much as the kind can, and what blocks
    after them."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._left: dict[str, list[tuple[Sequence[Object], Sequence[Families]]]] = {}

    def least(self, left: str, right: str) -> Fix | None:
        """The least of one kind that works beside plenty of the other, and then the least of the other."""
        trials = self._trials
        # A change that does not help beside plenty of the left kind never helps; a model proposes no plenty.
        orders = [(left, right)] if left not in _PROPOSED else [(right, left)] * (right not in _PROPOSED)
        for kind, other in orders:
            for plenty, sets in self._after(kind):
                if in_the_way(sets, other) is not None:
                    continue
                second = _FIND[other](trials.after(plenty))
                first = _FIND[kind](trials.after(second.ops)) if second is not None else None
                if first is None or second is None:
                    continue
                ops = (*first.ops, *second.ops) if kind == left else (*second.ops, *first.ops)
                decided = trials.admits(ops)
                needless = (trials.admits([*ops[:i], *ops[i + 1 :]]) for i in range(len(ops)))
                if decided is not None and not any(needless):
                    amounts = {kind: first.amount, other: second.amount}
                    return Fix("combined", len(ops), "operations", ops, False, decided, amounts)
        return None

    def _after(self, kind: str) -> list[tuple[Sequence[Object], Sequence[Families]]]:
        trials = self._trials
        if kind not in self._left:
            self._left[kind] = []
            for plenty in _plenty(trials, kind):
                if over := trials.cycles.over():
                    raise Spent(over)
                with suppress(BadOperation):
                    situation = trials.after(plenty).here
                    group = situation.snapshot.group_by_key[trials.key]
                    with trials.cycles.work.at_most(ALL_SECONDS):
                        found = blocking_of(situation, group, trials.cycles.work)
                    self._left[kind].append((plenty, found.sets))
        return self._left[kind]


def _plenty(trials: Trials, kind: str) -> Iterator[Sequence[Object]]:
    """Operations of a kind that do as much as the kind can, to see what else is needed.

    For most kinds these are the last ones that they try; for the others a model proposes what to stop or
    move.
    """
    group, snapshot = trials.group, trials.snapshot
    name, ops = str(trials.key), list[Object]()
    if kind == "repair":
        yield from repairs(trials)
    elif kind == "uncordon":
        raw = {n["metadata"]["name"]: n for n in trials.raw["rawObjects"].get("nodes") or []}
        for node in snapshot.nodes:
            if (raw.get(node.name, {}).get("spec") or {}).get("unschedulable"):
                ops.append({"op": "uncordon", "nodes": [node.name]})
            keys = sorted({t.key for t in node.taints})
            ops += [{"op": "untaint", "node": node.name, "key": key} for key in keys]
        if ops:
            yield ops
    elif kind in ("raise-limit", "raise-quota"):
        field = kind.removeprefix("raise-")
        for queue in snapshot.queue_path.get(group.queue, ()):
            bounds = zip(QUEUE_RESOURCES, getattr(snapshot.queue_by_name[queue], field), strict=True)
            op = {"op": "set-queue", "queue": queue, "field": field, "value": -1}
            ops += [{**op, "resource": resource} for resource, bound in bounds if bound != UNLIMITED]
        if ops:
            yield ops
    elif kind == "tolerate":
        keys = sorted({t.key for node in snapshot.nodes for t in node.taints})
        if keys:
            yield [{"op": "tolerate", "podGroup": name, "key": key} for key in keys]
    elif kind == "add-nodes":
        for like in shapes(trials):
            yield [{"op": "add-nodes", "like": like, "count": 8}]
    elif kind not in _PROPOSED:
        listing = Listing(trials)
        _FIND[kind](listing)
        yield from listing.listed[-1:]
