"""The least change of one kind with which pod groups are admitted, on top of other operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kai_cp.explain.cycle import Cycles, DecidedCycle
from kai_cp.explain.disturb import move, stop
from kai_cp.explain.draft import BadOperation, Draft, nearest
from kai_cp.explain.operations import QUEUE_RESOURCES, applied
from kai_cp.explain.trials import NoTime, Trials
from kai_cp.json_types import Object
from kai_cp_models.queries.why import Blocking, wanted_below
from kai_cp_models.snapshot import MILLI, UNLIMITED, GroupKey

KINDS: Final = ("nodes:NODE", "limit:QUEUE.RESOURCE", "quota:QUEUE.RESOURCE", "stop", "move")
_KIND: Final = {"nodes": "add-nodes", "limit": "raise-limit", "quota": "raise-quota"}
_UNIT: Final = {"gpu": MILLI, "cpu": 1, "memory": 1_000_000}
_MOST_BELOW: Final = 12
"""Smaller amounts that are all tried, so that none of them helps."""


@dataclass
class Least:
    """The question: ``kind`` with its ``subject``, for which groups (None: all), up to ``most``."""

    kind: str
    subject: str
    targets: tuple[GroupKey, ...] | None
    most: int
    _seen: dict[float, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, targets: tuple[GroupKey, ...] | None, most: int) -> Least:
        """The question of ``--least``; raises ``BadOperation``."""
        name, _, subject = kind.partition(":")
        if name in ("stop", "move") and not subject:
            return cls(name, "", targets, most)
        if name not in _KIND or not subject:
            raise BadOperation(f"--least {kind}: expected one of {', '.join(KINDS)}")
        if name != "nodes" and subject.rpartition(".")[2] not in QUEUE_RESOURCES:
            raise BadOperation(
                f"--least {kind}: expected {name}:QUEUE.RESOURCE with one of {', '.join(QUEUE_RESOURCES)}"
            )
        return cls(name, subject, targets, most)

    def answer(self, cycles: Cycles, draft: Draft, base: DecidedCycle) -> Object:
        """The document's ``least``. ``base``: the cycle after the other operations."""
        waiting = self._left(base)
        if not waiting:
            return self._document(0, (), "proved", None)
        if self.kind in ("stop", "move"):
            return self._disturbing(cycles, base)
        if self.kind == "nodes":
            draft.find("nodes", "node", self.subject)
            return self._search(cycles, draft, self._copies, self.most, 1)
        queue, _, resource = self.subject.rpartition(".")
        draft.find("queues", "queue", queue)
        return self._raise(cycles, draft, base, queue, resource)

    def _left(self, decided: DecidedCycle) -> list[str]:
        """Which of the targets still wait."""
        keys = self.targets or tuple(group.key for group in decided.snapshot.groups)
        return [str(key) for key in keys if not decided.admits(key)]

    def _copies(self, amount: float) -> tuple[Object, ...]:
        return ({"op": "add-nodes", "like": self.subject, "count": int(amount)},)

    def _raise(self, cycles: Cycles, draft: Draft, base: DecidedCycle, queue: str, resource: str) -> Object:
        """Raises of one bound: at most until all that waits below the queue is within it."""
        r = ("cpu", "memory", "gpu").index(resource)
        found = base.snapshot.queue_by_name.get(queue)
        if found is None:
            raise BadOperation(f"queue {queue} is skipped")
        now = getattr(found, self.kind)[r]
        if now == UNLIMITED:
            return self._document(None, (), "proved", None, f"queue {queue} has no {self.kind} of {resource}")
        wanted = wanted_below(base.situation, queue)[r]
        field_now = now / _UNIT["memory"] if resource == "memory" else float(now)
        most = wanted / _UNIT[resource] - field_now
        step = 1 if all(not p.spec.gpu.shares for p in base.snapshot.pods) or resource != "gpu" else 0.01

        def operations(amount: float) -> tuple[Object, ...]:
            value = round(field_now + amount, 6)
            op: Object = {"op": "set-queue", "queue": queue, "resource": resource, "field": self.kind}
            return ({**op, "value": int(value) if value == int(value) else value},)

        steps = int(-(-most // step))
        return self._search(cycles, draft, operations, steps, step)

    def _search(
        self,
        cycles: Cycles,
        draft: Draft,
        make: Callable[[float], tuple[Object, ...]],
        most: int,
        step: float,
    ) -> Object:
        """The smallest number of steps that helps, by halving; those below are tried where they are few."""

        def helps(steps: int) -> bool:
            amount = steps * step
            decided = cycles.decide(applied(draft.raw, make(amount), draft.now))
            self._seen[steps] = self._left(decided)
            return not self._seen[steps]

        if most < 1 or not helps(most):
            return self._document(None, (), "not proved", None, f"none up to {round(most * step, 6)} helps")
        low, high = 0, most
        while high - low > 1 and not cycles.out_of_time():
            middle = (low + high) // 2
            if helps(middle):
                high = middle
            else:
                low = middle
        below = [k for k in range(high - 1, 0, -1) if k not in self._seen]
        if len(below) <= _MOST_BELOW:
            for k in below:
                if not cycles.out_of_time() and helps(k):
                    high = k
        proved = all(k in self._seen for k in range(1, high))
        amount = round(high * step, 6)
        rest = None
        if high > 1 and high - 1 in self._seen:
            rest = {"amount": round((high - 1) * step, 6), "waiting": self._seen[high - 1]}
        number = int(amount) if amount == int(amount) else amount
        return self._document(number, make(number), "proved" if proved else "not proved", rest)

    def _disturbing(self, cycles: Cycles, base: DecidedCycle) -> Object:
        """Stops or moves for one target after the other; of several targets together nothing is proved."""
        ops: list[Object] = []
        amount = 0.0
        proved = True
        decided = base
        find = stop if self.kind == "stop" else move
        for _ in range(self.most):
            left = self._left(decided)
            if not left:
                break
            key = GroupKey(*left[0].split("/", 1))
            try:
                fix = find(Trials(cycles, decided, key, Blocking()))
            except NoTime:
                fix = None
            if fix is None:
                return self._document(None, (), "not proved", {"amount": amount, "waiting": left})
            proved = proved and fix.proved and not ops
            ops += fix.ops
            amount += fix.amount
            decided = fix.decided
        if self._left(decided):
            return self._document(None, (), "not proved", {"amount": amount, "waiting": self._left(decided)})
        number = int(amount)
        return self._document(number, ops, "proved" if proved else "not proved", None)

    def _document(
        self, amount: float | None, ops: Sequence[Object], proof: str, below: Object | None, because: str = ""
    ) -> Object:
        found: Object = {
            "kind": _KIND.get(self.kind, self.kind),
            "amount": amount,
            "ops": list(ops),
            "proof": proof,
            "below": below,
        }
        if because:
            found["because"] = because
        return found


def targets_of(text: str, decided: DecidedCycle) -> tuple[GroupKey, ...] | None:
    """The pod groups of ``--for``; None: all. Raises ``BadOperation``."""
    if text == "all":
        return None
    found = []
    for part in text.split(","):
        name = part.strip().removeprefix("podgroup/")
        key = GroupKey(*name.split("/", 1)) if "/" in name else GroupKey("default", name)
        if key not in decided.snapshot.group_by_key:
            names = [str(known) for known in decided.snapshot.group_by_key]
            raise BadOperation(f"--for: there is no podgroup {name}{nearest(name, names)}")
        found.append(key)
    return tuple(found)
