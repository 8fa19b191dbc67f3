"""What a decision may name, as the checker judges it."""

from __future__ import annotations

import pytest

from kai_cp_models.plan import Decision
from tests.support.worlds import bind, cluster, evict, fraction, group, judged, named, node, nominate, pod


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        ([bind("a-0", gpu_groups=["x"])], []),
        ([bind("a-0", gpu_groups=[""])], ["Bind of pod ns/a-0", "a GPU group has no name"]),
        ([bind("a-0", gpu_groups=["x"], triggers=["v"])], ["Bind of pod ns/a-0", "a place has no triggers"]),
        ([evict("v-0", "preempt", "t"), nominate("t-0", action="preempt")], []),
        ([evict("v-0", "preempt", "t", gpu_groups=["y"]), nominate("t-0", action="preempt")], []),
        (
            [evict("v-0", "preempt", "t", gpu_groups=["z"]), nominate("t-0", action="preempt")],
            ["Evict of pod ns/v-0", "does not use GPU groups z"],
        ),
        (
            [evict("v-0", "preempt", "t", "t"), nominate("t-0", action="preempt")],
            ["Evict of pod ns/v-0", "is named twice"],
        ),
        (
            [
                evict("v-0", "preempt", "t"),
                nominate("t-0", action="preempt"),
                nominate("v-0", action="defrag", gpu_groups=["y"]),
            ],
            ["Nominate of pod ns/v-0", "defrag places only pods that it moves"],
        ),
    ],
)
def test_decisions_name_what_they_use(decisions: list[Decision], words: list[str]) -> None:
    snapshot = cluster(
        [pod("a-0", spec=fraction()), pod("v-0", "n1", spec=fraction(), gpu_groups=["y"]), pod("t-0")],
        [group("v", priority=10), group("t", priority=90)],
        [node("n1", gpus=2)],
    )
    faults = judged(snapshot, *decisions)
    assert named(faults, "protocol", *words) if words else faults == []
