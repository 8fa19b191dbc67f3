"""What happens to an action's evictions when a later action withdraws the place of one of its triggers."""

from __future__ import annotations

import pytest

from kai_cp_models.actions.home import come_home, has_room_at_home
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import UNLIMITED, LabelSelector, PodAffinityTerm, PodKey, PodSpec, Requirement
from tests.support.worlds import cluster, fraction, gpu_bound, group, node, pod, queue, spec


def test_pods_come_home_together_or_not_at_all() -> None:
    """y has taken half of the place of x and z, so only one of them could return."""
    snapshot = cluster(
        [*(pod(name, "n1", spec=spec(4)) for name in ("x-0", "z-0")), pod("y-0", spec=spec(4))]
    )
    ledger = Ledger.of(snapshot)
    x, z, y = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "z-0", "y-0"))
    ledger.evict(x)
    ledger.evict(z)
    ledger.place(y, 0, pipelined=True)
    assert not come_home(ledger, [x, z])
    assert ledger.evicted.keys() == {x.key, z.key}
    assert y.key in ledger.held
    assert come_home(ledger, [x])
    assert not has_room_at_home(ledger, z)


def test_device_that_others_have_filled_takes_no_share_home() -> None:
    """x shares a device with y. Once another share has taken what x left, x has no room there."""
    shares = [pod(name, "n1", spec=fraction(), gpu_groups=("d",)) for name in ("x-0", "y-0")]
    snapshot = cluster([*shares, pod("w-0", spec=fraction())])
    ledger = Ledger.of(snapshot)
    x, w = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "w-0"))
    ledger.evict(x)
    assert has_room_at_home(ledger, x)
    ledger.place(w, 0, ("d",), pipelined=True)
    assert not come_home(ledger, [x])
    ledger.unplace(w)
    assert come_home(ledger, [x])
    assert not ledger.evicted
    assert not ledger.held


def test_pod_that_keeps_a_device_for_others_does_not_come_home() -> None:
    """z leaves the device that x and then y joined. Without x, it becomes whole again."""
    runs = [
        pod(f"{name}-0", at, spec=fraction(), gpu_groups=(at,)) for name, at in (("x", "n2"), ("z", "n1"))
    ]
    snapshot = cluster([*runs, pod("y-0", spec=fraction())], nodes=[node("n1"), node("n2")])
    ledger = Ledger.of(snapshot)
    x, z, y = (snapshot.pod_by_key[PodKey("ns", name)] for name in ("x-0", "z-0", "y-0"))
    for leaving in (x, z):
        ledger.evict(leaving)
    for comes in (x, y):
        ledger.place(comes, snapshot.node_index["n1"], ("n1",), pipelined=True)
    assert not come_home(ledger, [x])
    ledger.unplace(y)
    assert come_home(ledger, [x])


APART = PodAffinityTerm(LabelSelector((Requirement("app", "In", ("x",)),)), "host", None, 0)
ALONE, PORT = spec(0, pod_anti_affinity=(APART,)), spec(0, host_ports=(("", "TCP", 80),))
BROKEN: list[tuple[str, PodSpec, tuple[str, ...], PodSpec, int]] = [
    # (what does not hold while x and y run, their spec and devices, what keeps one of them away, their limit)
    ("the node has one GPU", spec(1), (), spec(0), UNLIMITED),
    ("their device is full", fraction(600), ("d",), fraction(100), UNLIMITED),
    ("a term keeps them apart", ALONE, (), ALONE, UNLIMITED),
    ("they have one port", PORT, (), PORT, UNLIMITED),
    ("their queue is over its limit", spec(0), (), spec(0), 1000),
]


@pytest.mark.parametrize(
    ("wants", "devices", "other", "limit"), [x[1:] for x in BROKEN], ids=[x[0] for x in BROKEN]
)
def test_pods_that_never_left_need_nothing_anew(
    wants: PodSpec, devices: tuple[str, ...], other: PodSpec, limit: int
) -> None:
    """Until a pod has come, x and y may come home to what they broke before; and no matter who has come
    elsewhere in another queue."""
    runs = [pod(f"{name}-0", "n1", spec=wants, gpu_groups=devices, labels={"app": "x"}) for name in "xy"]
    comes = [pod(f"{name}-0", spec=other, labels={"app": "x"}) for name in "vw"]
    snapshot = cluster(
        [*runs, *comes],
        [group("w", queue="p")],
        [node(name, gpus=1, labels={"host": name}) for name in ("n1", "n2")],
        [queue("p"), queue("q", limit=gpu_bound(8)._replace(cpu=limit))],
    )
    ledger = Ledger.of(snapshot)
    x, y, v, w = (snapshot.pod_by_key[PodKey("ns", f"{name}-0")] for name in "xyvw")
    ledger.evict(x)
    ledger.evict(y)
    ledger.place(w, 1, pipelined=True)
    assert has_room_at_home(ledger, x)
    assert come_home(ledger, [x, y])
    ledger.evict(x)
    ledger.evict(y)
    ledger.place(v, 0, pipelined=True)
    assert not come_home(ledger, [x, y])
