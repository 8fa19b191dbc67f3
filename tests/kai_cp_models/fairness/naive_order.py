"""The fair order and the victim order once more, word by word from sections 3.5 and 3.6."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from hypothesis.errors import UnsatisfiedAssumption

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import Entry
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import Snapshot


@dataclass
class Naive:
    """Promised places and section 3.5 word by word: nothing is kept or shared, and ratios are exact."""

    snapshot: Snapshot
    book: QueueBook
    waiting: Mapping[GroupKey, Entry]
    gone: Mapping[str, Amounts] | None = None
    """For the victim order: what was popped so far, for each queue with all queues below it."""

    def first(self) -> GroupKey | None:
        roots = [queue.name for queue in self.snapshot.queues if queue.parent is None]
        return self._best(roots)

    def _best(self, siblings: list[str]) -> GroupKey | None:
        heads = {name: head for name in siblings if (head := self._head(name)) is not None}
        unbeaten = [
            name
            for name in heads
            if not any(self._before(other, heads[other], name, heads[name]) for other in heads)
        ]
        if heads and len(unbeaten) != 1:
            # Compared in pairs, steps 7 and 8 can form a cycle; then the text names no first queue.
            raise UnsatisfiedAssumption(heads)
        return heads[unbeaten[0]] if heads else None

    def _head(self, name: str) -> GroupKey | None:
        children = [queue.name for queue in self.snapshot.queues if queue.parent == name]
        if children:
            return self._best(children)
        mine = [key for key in self.waiting if self.snapshot.group_by_key[key].queue == name]
        choose: Callable[..., GroupKey] = min if self.gone is None else max
        return choose(mine, key=lambda key: self.waiting[key][0]) if mine else None

    def _before(self, left: str, left_head: GroupKey, right: str, right_head: GroupKey) -> bool:
        if left == right:
            return False
        if self.gone is not None:
            left, left_head, right, right_head = right, right_head, left, left_head
        mine, theirs = self._steps(left, left_head), self._steps(right, right_head)
        if mine != theirs:
            return mine < theirs
        share, other = self._share(left), self._share(right)
        if share != other:
            if all(a <= b for a, b in zip(share, other, strict=True)):
                return True
            if all(a >= b for a, b in zip(share, other, strict=True)):
                return False
        queues = self.snapshot.queue_by_name
        return (queues[left].created, left) < (queues[right].created, right)

    def _share(self, name: str) -> list[float]:
        shares = self.book.allocatable_share[self.book.index(name)].tolist()
        return [inf if share == -1 else share for share in shares]

    def _steps(self, name: str, head: GroupKey) -> tuple[object, ...]:
        i = self.book.index(name)
        held = self.book.allocated_of(name)
        asked = self.waiting[head][1]
        if self.gone is None:
            counted = changed = [h + a for h, a in zip(held, asked, strict=True)]
        else:
            counted = list(held)
            changed = [h - g - a for h, g, a in zip(held, self.gone[name], asked, strict=True)]
        fair = self.book.fair_share[i].tolist()
        quota = self.book.quota[i]
        share = self.book.allocatable_share[i].tolist()
        return (
            self.gone is None and self.waiting[head][0][0],
            all(f < h for f, h in zip(fair, held, strict=True)),
            not all(q == -1 or c <= q for c, q in zip(counted, quota, strict=True)),
            -self.snapshot.queue_by_name[name].priority,
            any(s == 0 and c > 0 for c, s in zip(counted, share, strict=True)),
            self._dominant(i, changed),
            self._dominant(i, held),
        )

    def _dominant(self, i: int, amounts: Sequence[int]) -> Fraction:
        found = []
        for resource, amount in enumerate(amounts):
            share = self.book.allocatable_share[i, resource]
            share = self.book.cluster[resource] if share == -1 else share
            unit = 1000 if resource == 2 else 1
            ratio = Fraction(amount) / Fraction(share) if share else Fraction(amount, unit) * 1000
            found.append(ratio)
        return max(found)
