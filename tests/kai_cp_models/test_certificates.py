"""What refuses a batch: each certificate in a tiny world where it holds, and in one where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp_models import engine
from kai_cp_models.pods import GroupKey
from kai_cp_models.proof import Proof, Refuter
from kai_cp_models.snapshot import Snapshot
from tests.support.objects import Object
from tests.support.plans import placed, reasons, solved
from tests.support.tiny import node, pod, queue, world

ASKS = "asks"


def asking(*pods: Object, nodes: tuple[Object, ...] = (), **more: Any) -> Snapshot:
    """One group asks beside what runs; victim, which it may preempt, is on a node of one GPU."""
    own = [made for made in pods if made["metadata"]["annotations"]["pod-group-name"] == ASKS]
    return world(
        [node("n0", gpus=1), *nodes],
        [pod("victim", "n0", gpus=1, priority="low"), *pods],
        groups={ASKS: {"minMember": len(own)}},
        actions="allocate, preempt",
        **more,
    )


def one(**more: Any) -> Object:
    """A pod of the group that asks."""
    return pod("asks-0", group=ASKS, **more)


def several(number: int, **more: Any) -> list[Object]:
    """Pods of the group that asks."""
    return [pod(f"asks-{i}", group=ASKS, **more) for i in range(number)]


PORT = {"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
"""A container that listens on a port of its node."""
FEW = {"resources": {"requests": {"cpu": "1"}}}

STAYS = pod("stays", "n0", priority="build")
"""A pod of one CPU that cannot be preempted."""

SHOWN: list[tuple[str, Snapshot, Snapshot]] = [
    # (certificate, a world in which it shows something, and one in which the group gets its places)
    (
        "an object is missing",
        asking(one(volumes=[{"name": "v", "configMap": {"name": "nowhere"}}])),
        asking(one(volumes=[{"name": "v", "configMap": {"name": "nowhere", "optional": True}}])),
    ),
    (
        "no node accepts a pod",
        asking(one(gpus=9, requests={"cpu": "7"}), nodes=(node("n1", {"cpu": "1"}, gpus=9),)),
        asking(one(gpus=9, requests={"cpu": "1"}), nodes=(node("n1", {"cpu": "1"}, gpus=9),)),
    ),
    (
        "over a limit or quota",
        asking(one(gpus=1), queues=[queue("q", limit={"gpu": 0})]),
        asking(one(gpus=1), queues=[queue("q", limit={"gpu": 1})]),
    ),
    ("over the sums of capacity", asking(*several(2, gpus=1)), asking(*several(1, gpus=1))),
    (
        "no node takes a pod",
        asking(one(gpus=1, requests={"cpu": "8"}), STAYS, pod("other"), nodes=(node("n1"),)),
        asking(one(gpus=1, requests={"cpu": "7"}), STAYS, pod("other"), nodes=(node("n1"),)),
    ),
    (
        "no places",
        asking(*several(2, containers=[PORT | FEW])),
        asking(*several(2, containers=[PORT | FEW]), nodes=(node("n1"),)),
    ),
]


@pytest.mark.parametrize(("name", "refused", "served"), SHOWN, ids=[row[0] for row in SHOWN])
def test_a_certificate_shows_that_there_are_no_places(
    monkeypatch: pytest.MonkeyPatch, name: str, refused: Snapshot, served: Snapshot
) -> None:
    found: dict[GroupKey, Proof] = {}
    proofs = Refuter.proofs

    def kept(refuter: Refuter) -> dict[GroupKey, Proof]:
        found.update(proofs(refuter))
        return found

    monkeypatch.setattr(engine.Refuter, "proofs", kept)
    key = GroupKey("default", ASKS)
    assert key.name in reasons(solved(refused))
    assert found[key] == Proof(name)
    assert "asks-0" in placed(solved(served))


def test_a_shared_gpu_that_moves_empty_gives_back_the_slot_of_its_reservation() -> None:
    """One slot is free in all. When moves is beside stays, a GPU and both slots of its node are free."""
    half = {"notes": {"gpu-fraction": "0.5"}}
    snapshot = world(
        [node("n0", {"pods": "3"}, gpus=1), node("n1", {"pods": "2"}, gpus=1)],
        [
            pod("stays", "n0", shares=["a"], **half),
            pod("moves", "n1", shares=["b"], **half),
            pod("pair-0", gpus=1, group="pair"),
            pod("pair-1", group="pair"),
        ],
        groups={"pair": {"minMember": 2}},
        actions="allocate, consolidation",
    )
    assert placed(solved(snapshot)) == {"pair-0", "pair-1"}


def test_a_queue_over_its_limit_is_told_what_it_holds() -> None:
    """Preempt alone, which could evict what the queue holds."""
    snapshot = world(
        [node("n0", gpus=4)],
        [pod("runs", "n0", gpus=1, priority="low"), pod(ASKS, gpus=3)],
        queues=[queue("q", limit={"gpu": 2})],
        actions="preempt",
    )
    (row,) = solved(snapshot).unscheduled
    assert (row.reason, row.message) == ("OverLimit", "queue q: limit 2 GPUs, used 1, needs 3")
