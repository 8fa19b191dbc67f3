"""Namespaces take turns, whatever one of them has waiting."""

from __future__ import annotations

from kai_cp.kube.api.fair_queue import FairQueue


def flooded() -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for i in range(5000):
        queue.put("evil", i, f"evil {i}")
    for i in range(2):
        queue.put("victim", i, f"victim {i}")
    return queue


def test_namespaces_take_turns_and_each_keeps_its_order() -> None:
    queue = flooded()
    assert [queue.take() for _ in range(5)] == ["evil 0", "victim 0", "evil 1", "victim 1", "evil 2"]
    assert len(queue) == 4997


def test_an_item_that_comes_again_keeps_its_place() -> None:
    queue = flooded()
    queue.put("evil", 0, "newer")
    assert queue.has("evil", 0)
    assert (queue.take(), len(queue)) == ("newer", 5001)
    assert not queue.has("evil", 0)


def test_the_namespace_with_most_items_loses_one() -> None:
    queue = flooded()
    queue.drop()
    assert [queue.take(), queue.take()] == ["evil 1", "victim 0"]


def test_discarded_items_are_not_taken() -> None:
    queue = flooded()
    for i in range(2):
        queue.discard("victim", i)
    queue.discard("victim", 0)
    queue.discard("nowhere", 0)
    assert len(queue) == 5000
    assert [queue.take(), queue.take()] == ["evil 0", "evil 1"]
    queue.clear()
    assert (len(queue), queue.take()) == (0, None)
