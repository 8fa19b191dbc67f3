"""The least change of one kind with which pod groups are admitted, on top of other operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, cast

from kai_cp.explain.choices import all_plain, least_of, moves, stops
from kai_cp.explain.cycle import Cycles, DecidedCycle
from kai_cp.explain.disturb import move, stop
from kai_cp.explain.draft import BadOperation
from kai_cp.explain.fixes import wall
from kai_cp.explain.operations import QUEUE_RESOURCES, beside_the_present
from kai_cp.explain.raises import QueueBound
from kai_cp.explain.sentences import words
from kai_cp.explain.targets import asked_groups
from kai_cp.explain.text import describe
from kai_cp.explain.trials import Fix, Spent, Trials, smallest
from kai_cp.json_types import Object, plain_number
from kai_cp_models.pods import UNLIMITED, GroupKey
from kai_cp_models.queries.why import (
    Blocking,
    blocking_of,
    charge_steps,
    eviction_units,
    wanted_below,
)

LeastKind = Literal["nodes", "limit", "quota", "stop", "move"]
KINDS: Final = ("nodes:NODE", "limit:QUEUE.RESOURCE", "quota:QUEUE.RESOURCE", "stop", "move")
_KIND: Final = {"nodes": "add-nodes", "limit": "raise-limit", "quota": "raise-quota"}
_MOST_ASKED: Final = 8
"""The most pod groups for which it is tested whether no amount can help."""


@dataclass(frozen=True)
class Least:
    """The question: ``kind`` with its ``subject``, for which groups (None: all), up to ``most``."""

    kind: LeastKind
    subject: str
    targets: tuple[GroupKey, ...] | None
    most: int

    @classmethod
    def of(cls, kind: str, targets: tuple[GroupKey, ...] | None, most: int) -> Least:
        """The question of ``--least``; raises ``BadOperation``."""
        name, _, subject = kind.partition(":")
        if name in ("stop", "move") and not subject:
            return cls(cast("LeastKind", name), "", targets, most)
        if name not in ("nodes", "limit", "quota") or not subject:
            raise BadOperation(f"--least {kind}: expected one of {', '.join(KINDS)}")
        if name != "nodes" and subject.rpartition(".")[2] not in QUEUE_RESOURCES:
            raise BadOperation(
                f"--least {kind}: expected {name}:QUEUE.RESOURCE with one of {', '.join(QUEUE_RESOURCES)}"
            )
        return cls(cast("LeastKind", name), subject, targets, most)

    def answer(self, cycles: Cycles, base: DecidedCycle) -> Object:
        """The document's ``least``. ``base``: the cycle after the other operations."""
        queue, _, resource = self.subject.rpartition(".")
        if self.kind == "nodes":
            base.draft.find("nodes", "node", self.subject)
        elif self.kind == "limit" or self.kind == "quota":
            base.draft.find("queues", "queue", queue)
        waiting = self._left(base)
        if not waiting:
            return self._document(0, (), "proved")
        trials = Trials(
            cycles,
            base,
            waiting[0],
            Blocking(),
            beside=self.targets or waiting,
            helps=lambda decided: not self._left(decided),
        )
        try:
            if self.kind == "stop" or self.kind == "move":
                return self._disturbing(trials, self.kind, waiting)
            if self.kind == "nodes":
                return self._counted(trials, waiting, self._copies, float, self.most)
            return self._raised(trials, waiting, self.kind, queue, QUEUE_RESOURCES.index(resource))
        except Spent as spent:
            return self._document(None, (), "not proved", because=str(spent))

    def _left(self, decided: DecidedCycle) -> list[GroupKey]:
        """The targets that still wait."""
        keys = self.targets or tuple(group.key for group in decided.snapshot.groups)
        return [key for key in keys if not decided.admits(key)]

    def _copies(self, count: int) -> Object:
        return {"op": "add-nodes", "like": self.subject, "count": count}

    def _raised(
        self,
        trials: Trials,
        waiting: Sequence[GroupKey],
        field: Literal["limit", "quota"],
        queue: str,
        resource: int,
    ) -> Object:
        """Raises of one bound: at most until all waiting work below the queue is within it."""
        found = trials.snapshot.queue_by_name.get(queue)
        if found is None:
            raise BadOperation(f"queue {queue} is skipped")
        what = f"{field} of {QUEUE_RESOURCES[resource]}"
        if getattr(found, field)[resource] == UNLIMITED:
            return self._document(None, (), "proved", because=f"queue {queue} has no {what}")
        charges = charge_steps(trials.situation, trials.snapshot.waiting_groups)[resource]
        wanted = wanted_below(trials.situation, queue)[resource]
        bound = QueueBound.of(found, field, resource, wanted, charges)
        if bound.full <= bound.now:
            because = f"what queue {queue} holds and what waits below it is within its {what}"
            return self._document(None, (), "proved", because=because)
        return self._counted(trials, waiting, bound.operation, bound.raised, bound.steps)

    def _counted(
        self,
        trials: Trials,
        waiting: Sequence[GroupKey],
        make: Callable[[int], Object],
        amount: Callable[[int], float],
        most: int,
    ) -> Object:
        """The smallest count from 1 to ``most`` that helps, with its operation."""
        left: dict[int, list[GroupKey]] = {}
        largest = self._after(trials, make(most))
        if self._left(largest):
            return self._none(trials, waiting, self._still_waits(trials, make(most), largest))

        def helps(count: int) -> bool:
            left[count] = self._left(self._after(trials, make(count)))
            return not left[count]

        count, proved = smallest(helps, most)
        below = _below(amount(count - 1), left[count - 1]) if left.get(count - 1) else None
        ops = beside_the_present(trials.raw, [make(count)])
        return self._document(amount(count), ops, "proved" if proved else "not proved", below)

    def _still_waits(self, trials: Trials, op: Object, decided: DecidedCycle) -> str:
        """Why the first target that a change does not help still waits in the cycle after it."""
        key = self._left(decided)[0]
        change = describe({"ops": beside_the_present(trials.raw, [op])})
        why = decided.situation.reasons.get(key)
        reason = "" if why is None else f": {why.reason}, {why.message}"
        return f"even this does not help: {change}; {key} would still wait{reason}"

    def _after(self, trials: Trials, op: Object) -> DecidedCycle:
        """The cycle after one more operation."""
        if over := trials.cycles.over():
            raise Spent(over)
        return trials.cycles.decide(trials.changed([op]))

    def _disturbing(
        self, trials: Trials, kind: Literal["stop", "move"], waiting: Sequence[GroupKey]
    ) -> Object:
        """The fewest pods to stop or to move: the least change for one target after the other, or a smaller
        choice for all of them. If choices are few, all smaller ones are tried, which proves that none
        helps."""
        fix = self._one_by_one(trials, kind)
        if len(waiting) > 1:
            choices, plain = (stops, True) if kind == "stop" else (moves, all_plain(trials))

            def takes(decided: DecidedCycle) -> bool:
                return kind == "stop" or not any(map(decided.disturbs_for, waiting))

            fix = least_of(trials, fix, choices, takes, every=plain)
        if fix is None or fix.amount > self.most:
            return self._none(trials, waiting, f"no choice of up to {self.most} pods that was tried helps")
        below = None
        with suppress(Spent):
            less = max(_without_one(trials, fix.ops[0]), key=_pods, default=None)
            if less is not None:
                below = _below(_pods(less), self._left(self._after(trials, less)))
        return self._document(fix.amount, fix.ops, "proved" if fix.proved else "not proved", below)

    def _one_by_one(self, trials: Trials, kind: Literal["stop", "move"]) -> Fix | None:
        """Stops or moves for one target after the other, without those that later ones make needless."""
        find = stop if kind == "stop" else move
        decided = trials.base
        found: list[Fix] = []
        while left := self._left(decided):
            fix = find(Trials(trials.cycles, decided, left[0], Blocking(), beside=trials.asked))
            if fix is None or len(found) == self.most:
                return None
            found.append(fix)
            decided = fix.decided
        if len(found) == 1:
            return found[0]
        op = _joined([op for fix in found for op in fix.ops])
        together = trials.admits([op])
        with suppress(Spent):
            while less := next((one for one in _without_one(trials, op) if trials.admits([one])), None):
                op, together = less, trials.admits([less])
        return None if together is None else Fix(kind, _pods(op), "pods", (op,), False, together)

    def _none(self, trials: Trials, waiting: Sequence[GroupKey], because: str) -> Object:
        """The answer that no amount helps: proved if something that this kind of change does not touch blocks
        a target."""
        situation, kind = trials.situation, _KIND.get(self.kind, self.kind)
        for key in waiting[:_MOST_ASKED]:
            if situation.state(key) != "pending" or trials.cycles.over():
                continue
            blocking = blocking_of(situation, trials.snapshot.group_by_key[key])
            left = wall(Trials(trials.cycles, trials.base, key, blocking), kind)
            if left is not None:
                because = f"no amount helps {key} against: {words(left)}"
                return self._document(None, (), "proved", because=because)
        return self._document(None, (), "not proved", because=because)

    def _document(
        self,
        amount: float | None,
        ops: Sequence[Object],
        proof: str,
        below: Object | None = None,
        because: str = "",
    ) -> Object:
        found: Object = {
            "kind": _KIND.get(self.kind, self.kind),
            "amount": plain_number(amount) if amount is not None else None,
            "ops": list(ops),
            "proof": proof,
            "below": below,
        }
        if because:
            found["because"] = because
        return found


def _below(amount: float, waiting: Sequence[GroupKey]) -> Object:
    return {"amount": plain_number(amount), "waiting": [str(key) for key in waiting]}


def _joined(ops: Sequence[Object]) -> Object:
    """Stops or moves one after the other as one operation."""
    if ops[0]["op"] == "stop":
        return {"op": "stop", "pods": sorted({pod for op in ops for pod in op["pods"]})}
    nodes = {one["pod"]: one["node"] for op in ops for one in op["moves"]}
    return {"op": "move", "moves": [{"pod": pod, "node": node} for pod, node in sorted(nodes.items())]}


def _pods(op: Object) -> int:
    return len(op["pods"] if op["op"] == "stop" else op["moves"])


def _without_one(trials: Trials, op: Object) -> Iterator[Object]:
    """The operation without one of its moves, or without the last eviction unit of one of its pod groups."""
    if op["op"] == "move":
        for one in op["moves"] if len(op["moves"]) > 1 else ():
            yield {**op, "moves": [other for other in op["moves"] if other is not one]}
        return
    gone = set(op["pods"])
    for group in trials.snapshot.groups:
        units = [{str(pod.key) for pod in unit} for unit in eviction_units(trials.situation, group.key)]
        last = next((unit for unit in reversed(units) if unit <= gone), None)
        if last is not None and last < gone:
            yield {**op, "pods": sorted(gone - last)}


def targets_of(text: str, decided: DecidedCycle) -> tuple[GroupKey, ...] | None:
    """The pod groups of ``--for``, names joined by commas; None: all. Raises ``BadOperation``."""
    if text == "all":
        return None
    try:
        found = asked_groups(map(str.strip, text.split(",")), decided.draft.raw, decided.snapshot)
    except BadOperation as problem:
        raise BadOperation(f"--for: {problem}") from None
    return tuple(dict.fromkeys(found))
