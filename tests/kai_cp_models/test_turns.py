"""Which groups a cycle looks at when more wait than it can look at."""

from __future__ import annotations

from dataclasses import replace

from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.turns import GIVES_WAY, QUIET_SECONDS, Turn, Turns, costs_of
from tests.support.worlds import cluster, group, leaf, noted, pod, spec, tree

SPEC = spec()


def world(**sizes: tuple[str, int]) -> Snapshot:
    """Waiting pod groups: name = (namespace, pods)."""
    pods, groups = [], []
    for name, (namespace, count) in sizes.items():
        key = GroupKey(namespace, name)
        groups.append(replace(group(name), key=key))
        pods += [
            replace(pod(f"{name}-{i}", spec=SPEC), key=PodKey(namespace, f"{name}-{i}"), group=key)
            for i in range(count)
        ]
    return cluster(pods, groups=groups)


def served(turns: Turns, seen: Snapshot, seconds: float) -> set[str]:
    found, waiting, *_ = turns.take(seen, seconds)
    left = {p.group.name for p in found.pods if p.group is not None and p.status is PodStatus.PENDING}
    assert not left & {entry.group.name for entry in waiting}
    assert left | {entry.group.name for entry in waiting} == {g.name for g in costs_of(seen)}
    return left


def test_a_world_that_fits_is_looked_at_at_once() -> None:
    seen = world(a=("x", 3), b=("y", 3))
    assert Turns().take(seen, 1.0) == Turn(seen)


def test_a_namespace_alone_does_not_wait() -> None:
    assert served(Turns(), world(a=("x", 100), b=("x", 5)), 0.001) == {"a", "b"}


def test_a_pod_beyond_the_minimum_costs_what_another_does() -> None:
    """4,000 pods of two pod sets take half a second (``test_a_large_group_costs_no_more_than_its_size``)."""

    def cost(count: int) -> int:
        sets = group("a", root=tree(1, leaf("s0", 1), leaf("s1", 1)))
        members = [pod(f"a-{i}", subgroup=f"s{i % 2}") for i in range(count)]
        return costs_of(cluster(members, groups=[sets]))[sets.key]

    assert cost(4000) - cost(2000) == cost(2001) - cost(1) == 2000 * (cost(2) - cost(1))


def test_the_costly_wait_and_the_others_do_not_notice() -> None:
    # A pod takes 12 steps, its group and kind some 100 more: of a cycle of 1,000 steps some 850 are for x.
    seen = world(victim=("y", 3), **{f"a{i}": ("x", 10) for i in range(9)})
    turns = Turns()
    turns_of = [served(turns, seen, 0.01) for _ in range(9)]
    assert all("victim" in found for found in turns_of)
    assert all(len(found) < 9 for found in turns_of)
    # Every namespace has a turn before any namespace has a second one.
    counts = [sum(f"a{i}" in found for found in turns_of) for i in range(9)]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1


def test_a_namespace_that_needs_more_than_a_part_saves_for_it_and_gives_way_to_new_groups() -> None:
    small = {"v": ("y", 3)}
    turns = Turns()
    at = [served(turns, world(huge=("x", 300), **small), 0.022) for _ in range(8)]
    first = next(i for i, found in enumerate(at) if "huge" in found)
    # 3,700 steps, some 2,000 a cycle: it has saved enough in the second cycle, in which no group is new.
    assert first == 1
    again = Turns()
    for i in range(8):
        assert "huge" not in served(again, world(huge=("x", 300), **{f"v{i}": ("y", 3)}), 0.022)


def test_the_reason_names_the_cost() -> None:
    waiting = Turns().take(world(huge=("x", 300), v=("y", 3)), 0.022).waiting
    assert [(entry.group.name, entry.reason) for entry in waiting] == [("huge", "WaitsForItsTurn")]
    assert waiting[0].message.startswith("looking at this pod group takes about ")


HUGE = {"huge": ("x", 1000)}
"""12,000 steps, which a cycle of one second has."""


def looks(turns: Turns, seen: Snapshot, at: float) -> set[str]:
    return served(turns, replace(seen, now=at), 1.0)


def test_new_and_cheap_groups_are_looked_at_before_expensive_ones() -> None:
    turns = Turns()
    assert looks(turns, world(**HUGE), 0.0) == {"huge"}
    assert looks(turns, world(**HUGE, v=("y", 1)), 1.0) == {"v"}
    # The pods of a gang come one by one; expensive groups are looked at when none has come for a while.
    assert looks(turns, world(**HUGE, v=("y", 1)), 1.1) == {"v"}
    assert looks(turns, world(**HUGE, v=("y", 3)), 1.2) == {"v"}
    assert looks(turns, world(**HUGE, v=("y", 3)), 1.2 + QUIET_SECONDS) == {"huge", "v"}
    # Neither group is new any more.
    assert looks(turns, world(**HUGE, v=("y", 3)), 2.0) == {"huge", "v"}
    assert turns.take(world(**HUGE, v=("y", 3)), 1.0).dear == {"x"}


def test_a_stream_of_new_groups_keeps_no_expensive_group_from_its_turn() -> None:
    turns = Turns()
    looked_at = [
        "huge" in looks(turns, world(**HUGE, **{f"v{i}": ("y", 3)}), i * QUIET_SECONDS) for i in range(20)
    ]
    assert looked_at.count(True) == 20 // (GIVES_WAY + 1)


def test_freed_capacity_is_offered_to_all_groups_at_once() -> None:
    def seen(running: int, **waiting: tuple[str, int]) -> Snapshot:
        found = world(**waiting)
        held = tuple(
            replace(pod(f"r{i}", spec=SPEC), status=PodStatus.RUNNING, node="n") for i in range(running)
        )
        return replace(found, pods=found.pods + held)

    turns = Turns()
    looks(turns, seen(2, **HUGE), 0.0)
    assert looks(turns, seen(1, **HUGE, v=("y", 3)), 1.0) == {"huge", "v"}
    assert looks(turns, seen(1, **HUGE, v=("y", 3), w=("y", 3)), 2.0) == {"v", "w"}


def test_a_group_with_a_promised_place_gives_way_to_none() -> None:
    def promised(seen: Snapshot) -> Snapshot:
        note = ("kai-cp/reservation", "{}")
        groups = tuple(noted(g, note) if g.key.name == "huge" else g for g in seen.groups)
        return replace(seen, groups=groups)

    assert looks(Turns(), promised(world(**HUGE, v=("y", 3))), 0.0) == {"huge", "v"}
