"""Where a pod group stands in the fair order, what is ahead of it, and the step that puts each there.

The line is that of ``inspect``: each group gets its next batch at its turn (3.5, 3.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kai_cp_models.explain.situation import Situation
from kai_cp_models.fairness.amounts import Amounts, pessimistic_batch
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.fairness.reclaim import levelled
from kai_cp_models.pods import GPU, MILLI, GroupKey

_QUEUE_STEPS: Final = (
    "{} has a group with promised places",
    "{} is not above its fair share",
    "{} is within its quota",
    "{} has the higher priority",
    "{} is entitled to what it asks for",
    "{} has the smaller share with its next batch",
    "{} has the smaller share",
)
"""Promised places (4.2) and steps 1 to 6 of the queue order (3.5), each stated as the reason why a queue
comes first."""
_GROUP_STEPS: Final = (
    "its places are promised",
    "higher priority",
    "further below its minimum",
    "older",
    "by name",
    "by namespace",
)
"""Steps of the order inside a leaf queue (3.6)."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A group before this one. ``because``: the first step of the order that puts it there."""

    group: GroupKey
    queue: str
    gpus: float
    because: str


@dataclass(frozen=True, slots=True)
class Position:
    """``at`` among ``of`` groups that may be served (None: the group is not among them); ``in_queue``: in its
    own queue."""

    at: int | None
    of: int
    in_queue: int | None
    ahead: tuple[Ahead, ...]

    @property
    def ahead_gpus(self) -> float:
        """GPUs of the next batches of all before it."""
        return sum(one.gpus for one in self.ahead)


class FairLine:
    """The line of all groups that wait, computed once."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._snapshot = situation.snapshot
        self._sizes: dict[GroupKey, Amounts] = {}
        self._entries: dict[GroupKey, Entry] = {}
        for group in self._snapshot.waiting_groups:
            state = situation.gang(group.key).at_first
            served = group.queue in self._snapshot.leaf_queues and state.ready and not group.backed_off
            if served and state.batch is not None:
                pods = state.batch.all_pods
                size = self._sizes[group.key] = pessimistic_batch(self._snapshot, pods)
                promised = situation.before.promised(pods)
                self._entries[group.key] = group_sort_key(group, state.elastic_state, promised=promised), size

    @cached_property
    def order(self) -> tuple[GroupKey, ...]:
        """All groups that may be served, in order."""
        return tuple(self._walk(None))

    @cached_property
    def _at(self) -> Mapping[GroupKey, int]:
        return {key: i for i, key in enumerate(self.order)}

    def position(self, key: GroupKey) -> Position:
        """The position of a pod group."""
        if key not in self._entries:
            return Position(None, len(self._entries), None, ())
        ahead = tuple(
            Ahead(other, self._queue(other), self._sizes[other][GPU] / MILLI, because)
            for other, because in self._walk(key).items()
        )
        mine = sum(one.queue == self._queue(key) for one in ahead)
        return Position(self._at[key] + 1, len(self._entries), mine + 1, ahead)

    def _queue(self, key: GroupKey) -> str:
        return self._snapshot.group_by_key[key].queue

    def _title(self, queue: str) -> str:
        return self._snapshot.queue_by_name[queue].title

    def _walk(self, until: GroupKey | None) -> dict[GroupKey, str]:
        """All groups before ``until``, each with the reason why it is before it."""
        book = self._situation.before.book.copy()
        order = FairOrder(self._snapshot, book, self._entries)
        found: dict[GroupKey, str] = {}
        while (key := order.peek()) is not None and key != until:
            found[key] = "" if until is None else self._because(order, key, until)
            order.pop()
            group = self._snapshot.group_by_key[key]
            book.charge(group.queue, self._sizes[key], group.preemptible)
            order.charged(group.queue)
        return found

    def _because(self, order: FairOrder, first: GroupKey, then: GroupKey) -> str:
        queue, other = self._queue(first), self._queue(then)
        if queue == other:
            mine, theirs = self._entries[first][0], self._entries[then][0]
            return next(word for word, a, b in zip(_GROUP_STEPS, mine, theirs, strict=True) if a != b)
        book = self._situation.before.book
        mine_level, their_level = levelled(book, queue, other)
        left, right = order.rank_of(book.index(mine_level)), order.rank_of(book.index(their_level))
        if left is not None and right is not None:
            for words, a, b in zip(_QUEUE_STEPS, left, right, strict=True):
                if a != b:
                    return words.format(self._title(mine_level))
        return f"{self._title(mine_level)} comes first among equals"
