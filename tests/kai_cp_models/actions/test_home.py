"""What happens to an action's evictions when a later action withdraws the place of one of its triggers."""

from __future__ import annotations

from kai_cp_models.actions.home import come_home, has_room_at_home
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import PodKey
from tests.support.worlds import cluster, fraction, pod, spec


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
