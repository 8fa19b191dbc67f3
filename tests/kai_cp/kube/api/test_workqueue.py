"""The queue of keys, with a clock of its own."""

from __future__ import annotations

from kai_cp.kube.api.workqueue import CROWDED_SECONDS, HUNG_SECONDS, WorkQueue

A, B = ("ns", "a"), ("ns", "b")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_that_waits_is_not_added_twice() -> None:
    queue = WorkQueue()
    queue.add([A, A, B])
    assert [queue.get(), queue.get()] == [(A, 0), (B, 0)]
    assert len(queue) == 0


def test_a_thousand_keys_of_one_namespace_delay_no_other() -> None:
    queue = WorkQueue()
    queue.add([("evil", str(i)) for i in range(1000)])
    queue.add([A])
    assert [queue.get(), queue.get()] == [(("evil", "0"), 0), (A, 0)]


def test_a_namespace_whose_keys_take_long_waits_for_those_of_others() -> None:
    """Otherwise every second thread that becomes free is for the one that holds them all."""
    queue = WorkQueue()
    queue.add([("slow", str(i)) for i in range(9)])
    assert [queue.get(), queue.get()] == [(("slow", "0"), 0), (("slow", "1"), 0)]
    queue.add([A, B])
    for key in (A, B):
        assert queue.get() == (key, 0)
        queue.done(key)
    assert queue.get() == (("slow", "2"), 0), "no other one waits"


def test_a_key_in_work_is_taken_up_again_when_that_has_ended() -> None:
    queue = WorkQueue()
    queue.add([A])
    queue.get()
    queue.add([A])
    assert len(queue) == 0, "never two at the same time"
    queue.done(A)
    assert queue.get() == (A, 0)
    queue.done(A)
    assert queue.idle


def test_failures_are_tried_again_later_each_time_and_counted() -> None:
    clock = Clock()
    queue = WorkQueue(monotonic=clock)
    queue.add([A])
    for attempt, longest in ((0, 1.0), (1, 2.0), (2, 4.0)):
        assert queue.get() == (A, attempt)
        queue.failed(A)
        assert not queue.idle
        assert len(queue) == 0, "it waits"
        clock.now += longest
    assert queue.get() == (A, 3)
    queue.done(A)
    queue.add([A])
    assert queue.get() == (A, 0), "success forgets"


def test_thousands_of_faulty_keys_of_a_namespace_are_tried_again_at_ten_a_second() -> None:
    """Each may cost requests: 10,000 pods whose owners are not there asked for them each minute."""
    clock = Clock()
    queue = WorkQueue(monotonic=clock)

    def fail() -> float:
        key, _ = queue.get() or A
        queue.failed(key, own=True)
        return queue._due[key] - clock.now  # noqa: SLF001

    queue.add([("many", str(i)) for i in range(2_000)])
    pauses = [fail() for _ in range(2_000)]
    assert pauses[0] <= 1.0
    assert 100.0 <= pauses[-1] <= 200.0
    queue.add([A])
    assert fail() <= 1.0, "those of other namespaces do not wait for them"
    queue.add([("many", "0")])
    queue.done((queue.get() or (A, 0))[0])
    assert queue._failing["many"] == 1_999  # noqa: SLF001
    queue.add([("many", str(i)) for i in range(10_000)])
    assert max(fail() for _ in range(9_999)) <= CROWDED_SECONDS


def test_a_change_during_work_that_fails_does_not_wait_for_the_pause() -> None:
    queue = WorkQueue(monotonic=Clock())
    queue.add([A])
    queue.get()
    queue.add([A])
    queue.failed(A)
    assert len(queue) == 1
    assert queue.get() == (A, 1), "and the failure counts for the next pause"


def test_changes_that_come_together_are_one() -> None:
    clock = Clock()
    queue = WorkQueue(monotonic=clock)
    queue.settle(1.0)
    queue.add([A])
    clock.now = 0.9
    queue.add([A])
    assert len(queue) == 0
    clock.now = 1.0
    assert queue.get() == (A, 0)


def test_a_key_may_be_asked_for_again_after_a_while() -> None:
    clock = Clock()
    queue = WorkQueue(monotonic=clock)
    queue.add([A])
    queue.get()
    queue.done(A, after=5.0)
    assert not queue.idle
    queue.add([A])
    assert queue.get() == (A, 0), "a change does not wait for that"


def test_a_waiting_thread_is_told_of_the_stop() -> None:
    queue = WorkQueue()
    queue.stop()
    assert queue.get() is None


def test_endless_work_is_reported() -> None:
    clock = Clock()
    queue = WorkQueue(monotonic=clock)
    queue.add([A, B])
    queue.get()
    clock.now = HUNG_SECONDS
    queue.get()
    assert not queue.hung()
    clock.now += 1.0
    assert queue.hung() == "the work on ns/a does not end"
    queue.done(A)
    assert not queue.hung()
