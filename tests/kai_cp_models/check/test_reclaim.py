"""In which order reclaim may take the units of a pod group, as the checker judges it (4.4, 5.4)."""

from __future__ import annotations

import pytest

from kai_cp_models.snapshot import Shares, Snapshot
from tests.support.worlds import (
    cluster,
    evict,
    group,
    judged,
    leaf,
    named,
    node,
    nominate,
    pod,
    queue,
    spec,
    tree,
)

_NONE = Shares(0, 0, 0)


def _world(gpus: tuple[int, ...], share: int, minimum: int, asked: int) -> Snapshot:
    """v of queue b runs pods of these sizes, the first ``minimum`` its core; b may hold ``share`` GPUs, and t
    of queue a asks for some.
    """
    queues = [
        queue("a", quota=Shares(-1, -1, sum(gpus)), weight=_NONE),
        queue("b", quota=Shares(-1, -1, share), weight=_NONE),
    ]
    running = [pod(f"v-{i}", "n1", spec=spec(size), created=float(i)) for i, size in enumerate(gpus)]
    groups = [group("v", minimum, queue="b"), group("t", queue="a")]
    return cluster([*running, pod("t-0", spec=spec(asked))], groups, [node("n1", sum(gpus))], queues)


@pytest.mark.parametrize(
    ("gpus", "share", "minimum", "taken", "fault"),
    [
        # The surplus of 4 goes first: that leaves 1 of 3, and the core may not go.
        ((1, 4), 3, 1, (1,), False),
        ((1, 4), 3, 1, (1, 0), True),
        # A core of 4 goes last, and is taken while b holds 4 of 3.
        ((4, 1), 3, 1, (1, 0), False),
        # Of surplus pods the latest goes first: v-2 leaves 2 of 3, and v-1 may not go.
        ((1, 1, 6), 3, 1, (2,), False),
        ((1, 1, 6), 3, 1, (2, 1), True),
        ((1, 1, 6), 1, 1, (2, 1), False),
        # Without a minimum every pod is surplus.
        ((1, 1, 6), 3, 0, (2, 1, 0), True),
        # Two pods that are the core together go as one unit.
        ((2, 2, 1), 3, 2, (2, 1, 0), False),
    ],
)
def test_the_surplus_of_a_group_goes_before_its_core(
    gpus: tuple[int, ...], share: int, minimum: int, taken: tuple[int, ...], fault: bool
) -> None:
    evictions = [evict(f"v-{i}", "reclaim", "t") for i in taken]
    snapshot = _world(gpus, share, minimum, asked=sum(gpus[i] for i in taken))
    faults = judged(snapshot, *evictions, nominate("t-0", action="reclaim"))
    assert named(faults, "reclaim", "takes too much from queue b") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("share", "fault"), [(10, False), (8, True)])
def test_an_optional_subgroup_is_reclaimed_for_as_a_whole(share: int, fault: bool) -> None:
    """t runs a pod of 2 GPUs, which is its minimum; its next batch is the subgroup z of 8 GPUs (5.3)."""
    queues = [
        queue("a", quota=Shares(-1, -1, share), weight=_NONE),
        queue("b", quota=Shares(-1, -1, 0), weight=_NONE),
    ]
    subgroups = tree(1, leaf("y", 1), leaf("z", 2))
    members = [
        pod("t-0", "n2", subgroup="y", spec=spec(2)),
        *(pod(f"t-{i}", subgroup="z", spec=spec(4)) for i in (1, 2)),
        *(pod(f"v-{i}", "n1", spec=spec(4)) for i in (0, 1)),
    ]
    groups = [group("t", queue="a", root=subgroups), group("v", 2, queue="b")]
    snapshot = cluster(members, groups, [node("n1"), node("n2", gpus=2)], queues)
    evictions = [evict(f"v-{i}", "reclaim", "t") for i in (0, 1)]
    faults = judged(snapshot, *evictions, *(nominate(f"t-{i}", action="reclaim") for i in (1, 2)))
    assert named(faults, "reclaim", "may not reclaim") is fault
    assert bool(faults) is fault


@pytest.mark.parametrize(("share", "fault"), [(6, False), (5, True)])
def test_pods_that_a_group_gets_beyond_its_batch_come_after_all_triggers(share: int, fault: bool) -> None:
    """u of queue a runs 1 GPU and gets three more before t, the trigger, gets 4. Only the first of the three
    is its batch (5.3). So a holds 2 when t takes 4; the other two use what is left over."""
    queues = [
        queue("a", quota=Shares(-1, -1, share), weight=_NONE),
        queue("b", quota=Shares(-1, -1, 0), weight=_NONE),
    ]
    members = [
        pod("u-0", "n2"),
        *(pod(f"u-{i}") for i in (1, 2, 3)),
        pod("t-0", spec=spec(4)),
        pod("v-0", "n1", spec=spec(8)),
    ]
    groups = [group("u", queue="a"), group("t", queue="a"), group("v", queue="b")]
    snapshot = cluster(members, groups, [node("n1", 8), node("n2", 1)], queues)
    places = [nominate(name, action="reclaim") for name in ("u-1", "u-2", "u-3", "t-0")]
    faults = judged(snapshot, evict("v-0", "reclaim", "t"), *places)
    assert named(faults, "reclaim", "pod group ns/t of queue a may not reclaim") is fault
    assert bool(faults) is fault
