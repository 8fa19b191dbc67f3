"""Fair order and victim order: worked steps, then against a naive comparator written from the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.fairness.amounts import Amounts, add, subtract, total
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.order import Entry, FairOrder, group_sort_key
from kai_cp_models.fairness.rank import victim_order
from kai_cp_models.fairness.steps import QueueSteps
from kai_cp_models.pods import GroupKey
from kai_cp_models.snapshot import Queue, Shares, Snapshot
from tests.kai_cp_models.fairness.builders import cluster, group, node, pending, queue, running
from tests.kai_cp_models.fairness.naive_order import Naive


@dataclass
class Scene:
    """Queues whose one group holds GPUs and whose other group asks for some. Every leaf wants 12 GPUs more,
    so shares do not depend on what is held or asked for.
    """

    queues: Sequence[Queue]
    held: Mapping[str, float] = field(default_factory=dict)
    asks: Mapping[str, float] = field(default_factory=dict)

    def build(self) -> tuple[Snapshot, QueueBook]:
        asking = {name: group(f"ask-{name}", name) for name in self.asks}
        holding = {name: group(f"run-{name}", name) for name in self.held}
        members = [pending(asking[name], gpus) for name, gpus in self.asks.items()]
        members += [running(holding[name], gpus) for name, gpus in self.held.items()]
        parents = {queue.parent for queue in self.queues}
        wanting = [group(f"want-{q.name}", q.name) for q in self.queues if q.name not in parents]
        members += [pending(one, 12) for one in wanting]
        groups = [*asking.values(), *holding.values(), *wanting]
        snapshot = cluster([node(gpus=12)], self.queues, groups, *members)
        return snapshot, QueueBook.of(snapshot)

    def fair(self) -> list[str]:
        """Queues in fair order, popped once each, without charging anything in between."""
        snapshot, book = self.build()
        return drain(snapshot, FairOrder(snapshot, book, entries(snapshot, self.asks, "ask")))

    def victims(self) -> list[str]:
        """Queues in victim order."""
        snapshot, book = self.build()
        order = victims_in_turn(book, givings(snapshot, entries(snapshot, self.held, "run")))
        return [snapshot.group_by_key[key].queue for key, _ in order]


def entries(snapshot: Snapshot, gpus: Mapping[str, float], stem: str) -> dict[GroupKey, Entry]:
    keys = {name: GroupKey("ns", f"{stem}-{name}") for name in gpus}
    return {
        keys[name]: (group_sort_key(snapshot.group_by_key[keys[name]], 0), (0, 0, round(size * 1000)))
        for name, size in gpus.items()
    }


def givings(snapshot: Snapshot, held: Mapping[GroupKey, Entry]) -> dict[GroupKey, Giving]:
    """Groups that give up all they hold at once."""
    return {
        key: Giving(snapshot.group_by_key[key].queue, [sort_key], [amounts])
        for key, (sort_key, amounts) in held.items()
    }


@dataclass
class Giving:
    """What a group of the queue gives up, unit by unit: their sort keys in the leaf and their charges."""

    queue: str
    keys: Sequence[Any]
    gives: Sequence[Amounts]

    @property
    def turns(self) -> Sequence[Any]:
        """A unit that would go before the one it follows goes directly after it."""
        return list(accumulate(self.keys, min))


def victims_in_turn(book: QueueBook, found: Mapping[GroupKey, Giving]) -> list[tuple[GroupKey, int]]:
    """The units in the order of ``victim_order``, as groups and positions in their ``gives``."""
    units = [(key, k) for key, giving in found.items() for k in range(len(giving.gives))]
    places = {key: g for g, key in enumerate(found)}
    keys = {key: i for i, key in enumerate(sorted({key for one in found.values() for key in one.keys}))}
    order = victim_order(
        book,
        np.array([book.tree.index.get(found[key].queue, -1) for key, _ in units], dtype=np.int64),
        np.array([places[key] for key, _ in units], dtype=np.int64),
        np.array([keys[found[key].keys[k]] for key, k in units], dtype=np.int64),
        np.array([found[key].gives[k] for key, k in units], dtype=np.int64).reshape(-1, 3),
    )
    return [units[u] for u in order.tolist()]


def drain(snapshot: Snapshot, order: FairOrder) -> list[str]:
    found = []
    while (key := order.pop()) is not None:
        found.append(snapshot.group_by_key[key].queue)
    return found


@pytest.mark.parametrize(
    ("queues", "held", "asks", "first"),
    [
        # Step 2: with its batch b stays within its quota of 4; a (higher priority) would pass its quota of 2.
        ([queue("a", quota=2, priority=200), queue("b", quota=4)], {}, {"a": 3, "b": 3}, "b"),
        # "Within" includes exactly at the quota: 3 of 3 goes before 3 of 2.
        ([queue("a", quota=2, priority=200), queue("b", quota=3)], {}, {"a": 3, "b": 3}, "b"),
        # Step 3: both are within quota, so priority decides although b holds less.
        ([queue("a", quota=6, priority=200), queue("b", quota=6)], {"a": 2}, {"a": 1, "b": 1}, "a"),
        # Step 4: the GPU share of a is 0 (limit 0).
        ([queue("a", limit=0), queue("b")], {"b": 5}, {"a": 1, "b": 1}, "b"),
        # Step 5: 1/6 + 3/6 against 2/6 + 1/6 of equal shares of 6.
        ([queue("a"), queue("b")], {"a": 1, "b": 2}, {"a": 3, "b": 1}, "b"),
        # Step 6: equal with the batch (1 + 3 = 3 + 1); b has less without it.
        ([queue("a"), queue("b")], {"a": 3, "b": 1}, {"a": 1, "b": 3}, "b"),
        # Step 7: nothing is held and the batch asks for nothing: the smaller share (quota 2 : 6) comes first.
        ([queue("a", quota=6, created=0), queue("b", quota=2, created=9)], {}, {"a": 0, "b": 0}, "b"),
        # Step 8: if all else is equal, the older queue comes first; then the name decides.
        ([queue("a", created=5), queue("b", created=4)], {}, {"a": 1, "b": 1}, "b"),
        ([queue("a", created=4), queue("b", created=4)], {}, {"a": 1, "b": 1}, "a"),
    ],
)
def test_queue_order_step_by_step(
    queues: list[Queue], held: dict[str, float], asks: dict[str, float], first: str
) -> None:
    assert Scene(queues, held, asks).fair()[0] == first


@pytest.mark.parametrize(
    ("queues", "held", "first"),
    [
        # Step 2: what a holds now is above its quota. b is within its quota, because its own job does not
        # count twice.
        ([queue("a", quota=2, priority=200), queue("b", quota=4)], {"a": 3, "b": 3}, "a"),
        # Step 3: the lower queue priority gives up first.
        ([queue("a", quota=6, priority=200), queue("b", quota=6)], {"a": 3, "b": 1}, "b"),
        # Step 4: a holds GPUs although its share is 0.
        ([queue("a", limit=0), queue("b")], {"a": 1, "b": 5}, "a"),
        # Step 5 ends in a tie at 0 left; step 6: the queue that holds more gives up first.
        ([queue("a"), queue("b")], {"a": 2, "b": 3}, "b"),
        # Step 7: no queue holds GPUs; the larger share (quota 6 : 2) gives up first, whatever its age.
        ([queue("a", quota=6, created=0), queue("b", quota=2, created=9)], {"a": 0, "b": 0}, "a"),
        # Step 8: the newer queue, then the later name.
        ([queue("a", created=5), queue("b", created=4)], {"a": 1, "b": 1}, "a"),
        ([queue("a", created=4), queue("b", created=4)], {"a": 1, "b": 1}, "b"),
    ],
)
def test_victim_order_step_by_step(queues: list[Queue], held: dict[str, float], first: str) -> None:
    assert Scene(queues, held).victims()[0] == first


def test_an_order_can_follow_another_book() -> None:
    snapshot, book = Scene([queue("a"), queue("b")], {}, {"a": 1, "b": 1}).build()
    order = FairOrder(snapshot, book, entries(snapshot, {"a": 1, "b": 1}, "ask"))
    assert order.peek() == GroupKey("ns", "ask-a")
    other = book.copy()
    other.charge("a", (0, 0, 2000), preemptible=True)
    order.use(other, "a")
    assert order.peek() == GroupKey("ns", "ask-b")


def test_over_utilised_means_over_the_share_in_all_three() -> None:
    # a and b both hold more GPUs than their share of 2. b also exceeds its shares of CPU and memory (limit 1
    # unit each), so it comes last although it has the higher priority.
    tight = Shares(1, 1, 2)
    queues = [queue("a", limit=2), queue("b", limits=tight, priority=200)]
    snapshot, book = Scene(queues, {}, {"a": 1, "b": 1}).build()
    book.charge("a", (5000, 0, 3000), preemptible=True)
    book.charge("b", (5000, 5000, 3000), preemptible=True)
    asked = entries(snapshot, {"a": 1, "b": 1}, "ask")
    assert drain(snapshot, FairOrder(snapshot, book, asked)) == ["a", "b"]
    book.charge("b", (0, 5000, 0), preemptible=True, sign=-1)
    assert drain(snapshot, FairOrder(snapshot, book, asked)) == ["b", "a"]


def test_groups_of_a_leaf_by_priority_then_elastic_state_then_age_then_name() -> None:
    groups = [
        group("e", "a", priority=60),
        group("d", "a", created=3.0),
        group("c", "a", created=3.0),
        group("b", "a", created=5.0),
        group("a", "a", created=1.0),
    ]
    elastic = {"e": 2, "d": 0, "c": 0, "b": 0, "a": 1}
    snapshot = cluster([node()], [queue("a")], groups)
    book = QueueBook.of(snapshot)
    asked = {g.key: (group_sort_key(g, elastic[g.key.name]), (0, 0, 1000)) for g in groups}
    order = FairOrder(snapshot, book, asked)
    assert [order.pop() for _ in groups] == [GroupKey("ns", name) for name in "ecdba"]
    assert order.pop() is None
    victims = victims_in_turn(book, givings(snapshot, asked))
    assert victims == [(GroupKey("ns", name), 0) for name in "abdce"]


def test_departments_are_compared_before_teams() -> None:
    # d0 holds 4 of 6 (all by team b), d1 holds 2 of 6: c goes first although a holds nothing itself.
    queues = [queue("d0"), queue("d1"), queue("a", "d0"), queue("b", "d0"), queue("c", "d1")]
    scene = Scene(queues, {"b": 4, "c": 2}, {"a": 1, "b": 1, "c": 1})
    assert scene.fair() == ["c", "a", "b"]


def test_groups_outside_leaf_queues_are_left_out() -> None:
    queues = [queue("d0"), queue("a", "d0")]
    groups = [group("in-a-department", "d0"), group("nowhere", "gone")]
    snapshot = cluster([node()], queues, groups)
    order = FairOrder(
        snapshot, QueueBook.of(snapshot), {g.key: (group_sort_key(g, 0), (0, 0, 0)) for g in groups}
    )
    assert len(order) == 0
    assert order.pop() is None


def test_victims_come_from_the_queue_that_stays_most_saturated_without_them() -> None:
    # Both hold 6 of a share of 6. Without its job of 5 GPUs a would hold 1; without its job of 2 GPUs b would
    # hold 4.
    queues = [queue("a", created=9), queue("b")]
    groups = [group("big", "a"), group("rest-a", "a", priority=90)]
    groups += [group("small", "b"), group("rest-b", "b", priority=90)]
    sizes = {"big": 5, "rest-a": 1, "small": 2, "rest-b": 4}
    members = [running(g, sizes[g.key.name]) for g in groups]
    snapshot = cluster([node(gpus=12)], queues, groups, *members)
    held: dict[GroupKey, Entry] = {
        g.key: (group_sort_key(g, 1), (0, 0, sizes[g.key.name] * 1000)) for g in groups
    }
    order = victims_in_turn(QueueBook.of(snapshot), givings(snapshot, held))
    # small leaves b at 4 > 1. Then rest-b would leave 0 < 1, so big is next. Then rest-a and rest-b both
    # leave 0 and hold the same, so the newer queue a comes first.
    assert [key.name for key, _ in order] == ["small", "big", "rest-a", "rest-b"]


def test_a_shrunk_victim_counts_with_what_it_gave_up() -> None:
    # a and b hold 6 each, with one elastic job per queue that gives up one GPU at a time: they take turns.
    queues = [queue("a", created=9), queue("b")]
    groups = {name: group(f"run-{name}", name) for name in "ab"}
    snapshot = cluster([node(gpus=12)], queues, groups.values(), *(running(g, 6) for g in groups.values()))
    units = {
        g.key: Giving(name, [group_sort_key(g, 2)] * 6, [(0, 0, 1000)] * 6) for name, g in groups.items()
    }
    order = victims_in_turn(QueueBook.of(snapshot), units)
    # With all of the next candidate gone both queues stand at 0, whatever they gave up, and without it they
    # hold the same. Step 5 therefore never decides, and the newer queue gives up first until the end.
    assert order == [(groups[name].key, k) for name in "ab" for k in range(6)]


# --- against a naive comparator --------------------------------------------------------------------


SMALL = st.sampled_from([0, 0, 1, 2, 3])


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> tuple[Snapshot, QueueBook, dict[GroupKey, Entry]]:
    """Up to three departments with up to three teams each, and a few groups per team."""
    queues: list[Queue] = []
    teams: list[str] = []

    def draw_queue(name: str, parent: str | None) -> Queue:
        return queue(
            name,
            parent,
            quota=draw(st.sampled_from([0, 1, 2, -1])),
            limit=draw(st.sampled_from([-1, -1, 0, 4])),
            weight=draw(st.sampled_from([0, 1, 2])),
            priority=draw(st.sampled_from([100, 100, 200])),
            created=float(draw(st.integers(0, 2))),
        )

    for d in range(draw(st.integers(1, 3))):
        queues.append(draw_queue(f"d{d}", None))
        for t in range(draw(st.integers(0, 3))):
            queues.append(draw_queue(f"d{d}-t{t}", f"d{d}"))
    parents = {q.parent for q in queues}
    teams = [q.name for q in queues if q.name not in parents]
    groups = [
        group(f"g{i}", team, priority=draw(st.sampled_from([50, 60])), created=float(draw(SMALL)))
        for i, team in enumerate(draw(st.lists(st.sampled_from(teams), max_size=most)))
    ]
    members = [running(g, draw(st.sampled_from([0, 1, 2]))) for g in groups]
    members += [pending(g, draw(st.sampled_from([0, 1, 3]))) for g in groups]
    snapshot = cluster([node(gpus=8, cpus=8)], queues, groups, *members)
    book = QueueBook.of(snapshot)
    for team in teams:
        book.charge(team, (1000 * draw(SMALL), 1024 * draw(SMALL), 1000 * draw(SMALL)), preemptible=True)
    size = st.tuples(st.sampled_from([0, 1000]), st.just(0), st.sampled_from([0, 1000, 2000]))
    waiting = {
        g.key: (group_sort_key(g, draw(st.integers(0, 2)), promised=draw(st.booleans())), draw(size))
        for g in groups
    }
    return snapshot, book, waiting


@given(drawn=clusters(most=14), data=st.data())
def test_pop_among_some_groups_gives_the_order_of_single_pops(
    drawn: tuple[Snapshot, QueueBook, dict[GroupKey, Entry]], data: st.DataObject
) -> None:
    snapshot, book, waiting = drawn
    among = {key for key in sorted(waiting) if data.draw(st.booleans())}
    order, one_by_one = FairOrder(snapshot, book, waiting), FairOrder(snapshot, book, waiting)
    before: list[GroupKey] = []
    while (key := order.pop(among, before)) is not None:
        passed = []
        while (other := one_by_one.pop()) not in among:
            assert other is not None
            passed.append(other)
        assert (key, before) == (other, passed)
        before.clear()
        queue, asked = snapshot.group_by_key[key].queue, waiting[key][1]
        book.charge(queue, asked, preemptible=True)
        for line in (order, one_by_one):
            line.charged(queue)
        assert len(order) == len(one_by_one)
    assert before == list(iter(one_by_one.pop, None))
    assert among.isdisjoint(before)


@given(drawn=clusters(most=14), data=st.data())
def test_a_thinned_order_gives_some_groups_in_the_same_order(
    drawn: tuple[Snapshot, QueueBook, dict[GroupKey, Entry]], data: st.DataObject
) -> None:
    snapshot, book, waiting = drawn
    among = {key for key in sorted(waiting) if data.draw(st.booleans())}
    line = FairOrder(snapshot, book, waiting)
    thin = line.thinned(among)
    assert line.thinned(sorted(among)[1:]) is thin
    also = {key: (entry[0], (0, 0, 0)) for key, entry in waiting.items() if key in among and data.draw(SMALL)}
    orders = [line.fork(book, also=also), thin.fork(book, also=also)]
    while (key := orders[0].pop(among)) is not None:
        assert orders[1].pop(among) == key
        queue = snapshot.group_by_key[key].queue
        book.charge(queue, waiting[key][1], preemptible=True)
        for order in orders:
            order.charged(queue)
    assert orders[1].pop(among) is None


def test_groups_alike_are_one_in_a_thinned_order() -> None:
    snapshot = cluster(
        [node()], [queue("team")], [group(f"g{i}", "team", created=float(i)) for i in range(9)]
    )
    waiting = {one.key: (group_sort_key(one, 0), (0, 0, 1000)) for one in snapshot.groups}
    line = FairOrder(snapshot, QueueBook.of(snapshot), waiting)
    thin = line.thinned(list(waiting)[4:5])
    assert [key.name for key in iter(thin.fork(QueueBook.of(snapshot)).pop, None)] == ["g0", "g4", "g5"]


@given(drawn=clusters(), data=st.data())
def test_fair_order_is_the_naive_one_whatever_happens_in_between(
    drawn: tuple[Snapshot, QueueBook, dict[GroupKey, Entry]], data: st.DataObject
) -> None:
    snapshot, book, waiting = drawn
    order = FairOrder(snapshot, book, waiting)
    for _ in range(12):
        assert order.peek() == FairOrder(snapshot, book, waiting).peek()
        assert order.peek() == Naive(snapshot, book, waiting).first()
        step = data.draw(st.sampled_from(["serve", "refuse", "push", "discard", "charge"]))
        keys = sorted(snapshot.group_by_key)
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        leaf = snapshot.group_by_key[key].queue
        if step in ("serve", "refuse"):
            popped = order.pop()
            if popped is None:
                continue
            entry = waiting.pop(popped)
            if step == "serve":
                book.charge(snapshot.group_by_key[popped].queue, entry[1], preemptible=True)
                order.charged(snapshot.group_by_key[popped].queue)
        elif step == "push":
            replaces = key in waiting
            waiting[key] = (
                group_sort_key(
                    snapshot.group_by_key[key],
                    data.draw(st.integers(0, 2)),
                    promised=data.draw(st.booleans()),
                ),
                (0, 0, 1000 * data.draw(SMALL)),
            )
            if replaces:
                order = order.fork(book, also={key: waiting[key]})
            else:
                apart, before = order.fork(book), len(order)
                order.push(key, waiting[key])
                # A fork sees nothing of it.
                assert len(apart) == len(list(iter(apart.pop, None))) == before
        elif step == "discard":
            waiting.pop(key, None)
            order = order.fork(book, only=waiting)
        else:
            book.charge(leaf, (0, 0, 1000), preemptible=True)
            order.charged(leaf)
        assert len(order) == len(waiting)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Snapshot, QueueBook, dict[GroupKey, Giving]]:
    """Clusters whose groups give up one to three units; a later unit may stand anywhere in its leaf."""
    snapshot, book, waiting = draw(clusters())
    size = st.tuples(st.sampled_from([0, 1000]), st.just(0), st.sampled_from([0, 1000, 2000]))
    found = {}
    for key in waiting:
        group_ = snapshot.group_by_key[key]
        states = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
        keys = [group_sort_key(group_, state) for state in states]
        found[key] = Giving(group_.queue, keys, [draw(size) for _ in states])
    return snapshot, book, found


@dataclass
class OneByOne:
    """Victims popped one at a time, with every head compared anew: what ``victim_order`` does in one sort."""

    book: QueueBook
    givings: Mapping[GroupKey, Giving]

    def __post_init__(self) -> None:
        self.steps = self.book.steps
        self.turn = dict.fromkeys(self.givings, 0)
        self.gone = [(0, 0, 0) for _ in self.book.tree.queues]

    def run(self) -> list[tuple[GroupKey, int]]:
        found = []
        while (key := self.head(self.book.tree.roots)) is not None:
            giving, k = self.givings[key], self.turn[key]
            found.append((key, k))
            self.turn[key] += 1
            for i in self.book.line(giving.queue):
                self.gone[i] = add(self.gone[i], giving.gives[k])
        return found

    def head(self, siblings: Sequence[int]) -> GroupKey | None:
        heads = {i: key for i in siblings if (key := self.below(i)) is not None}
        if not heads:
            return None
        ranks = {i: self.rank(i, key) for i, key in heads.items()}
        return heads[next(self.steps.in_turn((i for i in heads if ranks[i] == max(ranks.values())), -1))]

    def below(self, i: int) -> GroupKey | None:
        tree = self.book.tree
        if tree.children[i]:
            return self.head(tree.children[i])
        mine = [
            key
            for key, giving in self.givings.items()
            if tree.index[giving.queue] == i and self.turn[key] < len(giving.gives)
        ]
        return max(mine, key=lambda key: self.givings[key].turns[self.turn[key]], default=None)

    def rank(self, i: int, key: GroupKey) -> tuple[object, ...]:
        held = self.book.allocated_of(self.book.name(i))
        left = subtract(subtract(held, self.gone[i]), total(self.givings[key].gives[self.turn[key] :]))
        return (
            *self.steps.standing(i, held, held),
            self.steps.dominant(i, left),
            self.steps.dominant(i, held),
        )


@given(drawn=chains())
def test_ranking_by_a_sort_takes_what_popping_one_by_one_takes(
    drawn: tuple[Snapshot, QueueBook, dict[GroupKey, Giving]],
) -> None:
    _, book, found = drawn
    assert victims_in_turn(book, found) == OneByOne(book, found).run()


@given(drawn=chains())
def test_victim_order_is_the_naive_one_reversed(
    drawn: tuple[Snapshot, QueueBook, dict[GroupKey, Giving]],
) -> None:
    snapshot, book, found = drawn
    gone: dict[str, Amounts] = {q.name: (0, 0, 0) for q in snapshot.queues}
    left = {key: (giving.turns[0], total(giving.gives)) for key, giving in found.items()}
    for key, k in victims_in_turn(book, found):
        assert Naive(snapshot, book, left, gone).first() == key
        giving = found[key]
        del left[key]
        if k + 1 < len(giving.gives):
            left[key] = giving.turns[k + 1], total(giving.gives[k + 1 :])
        for name in snapshot.queue_path[giving.queue]:
            gone[name] = add(gone[name], giving.gives[k])
    assert not left


@dataclass
class Compared:
    """A step that counts how often ranks are compared by it."""

    times: list[int]

    def __lt__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        self.times[0] += 1
        return True


@pytest.mark.parametrize("quota", [lambda i: 1, lambda i: i], ids=["equal quotas", "unequal quotas"])
def test_a_pop_compares_few_siblings(quota: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """256 sibling queues, each with one waiting group; nothing tells them apart before step 5."""
    names = [f"q{i:03}" for i in range(256)]
    queues = [queue(name, quota=quota(i)) for i, name in enumerate(names)]
    times = [0]
    monkeypatch.setattr(QueueSteps, "standing", lambda self, *_: (Compared(times),))
    assert sorted(Scene(queues, asks=dict.fromkeys(names, 1)).fair()) == names
    assert times[0] < 64 * len(names)
