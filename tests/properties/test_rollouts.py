"""Graceful rollouts, against brute force over places and over the order in which pods come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.snapshot import Snapshot
from tests.support.brute import Places, agrees, worlds
from tests.support.objects import Object, ago
from tests.support.tiny import node, pod, queue, world

NODES: Final = ("n0", "n1")
GPUS: Final = 4
AGES: Final = {"r1": 9000, "r2": 1200, "r3": 60}
"""Seconds since the first pod of a revision was created; r3 has no running pod."""
Kind = tuple[str, str, int]
"""Workload and revision ("" for a pod without one), GPUs."""

running = st.tuples(st.sampled_from(("a r1", "a r2", "b r1", " ")), st.integers(1, 2))
waiting = st.tuples(st.sampled_from(("a r1", "a r2", "a r3", "b r1", "b r2", " ")), st.integers(1, 2))


def kind(drawn: tuple[str, int]) -> Kind:
    workload, _, revision = drawn[0].partition(" ")
    return workload, revision, drawn[1]


def made(name: str, one: Kind, on: str) -> Object:
    workload, revision, gpus = one
    if not workload:
        return pod(name, on, gpus=gpus)
    found = pod(name, on, gpus=gpus, labels={"pod-template-hash": revision})
    owner = {"kind": "ReplicaSet", "name": f"{workload}-{revision}", "controller": True}
    found["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": ago(AGES[revision])}
    return found


def cluster(kinds: Mapping[str, Kind], places: Places, quotas: tuple[int, int], minutes: int) -> Snapshot:
    top = queue("dept", quota={"gpu": quotas[0]})
    leaf = queue("q", "dept", quota={"gpu": quotas[1]})
    top["metadata"]["annotations"] = {"kai-cp/rollout": f"{minutes}m"}
    return world(
        [node(name, gpus=GPUS) for name in NODES],
        [made(name, one, places.get(name, "")) for name, one in kinds.items()],
        groups={name: {"preemptibility": "non-preemptible"} for name in kinds},
        queues=[top, leaf],
    )


def newest(kinds: Mapping[str, Kind], minutes: int) -> dict[str, str]:
    """The new revision of every workload in rollout."""
    found = {}
    for workload in ("a", "b"):
        there = sorted({one[1] for one in kinds.values() if one[0] == workload})
        if len(there) > 1 and AGES[there[-1]] <= minutes * 60:
            found[workload] = there[-1]
    return found


def counted(kinds: Mapping[str, Kind], names: Sequence[str], new: Mapping[str, str]) -> int:
    """The GPUs of these pods; for a workload in rollout only those of its larger side."""
    total = sum(kinds[name][2] for name in names if kinds[name][0] not in new)
    for workload, revision in new.items():
        sides = [0, 0]
        for name in names:
            if kinds[name][0] == workload:
                sides[kinds[name][1] == revision] += kinds[name][2]
        total += max(sides)
    return total


def admitted(
    kinds: Mapping[str, Kind], held: Sequence[str], coming: Sequence[str], quota: int, new: Mapping[str, str]
) -> bool:
    """Whether all pods are admitted one after the other."""
    names = list(held)
    for name in coming:
        names.append(name)
        workload, revision, _ = kinds[name]
        plain = sum(kinds[other][2] for other in names) <= quota
        lent = new.get(workload) == revision and counted(kinds, names, new) <= quota
        if not plain and not lent:
            return False
    return True


@worlds(60)
@given(
    st.lists(running, max_size=3),
    st.lists(waiting, min_size=1, max_size=3),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from((10, 60)),
    st.data(),
)
def test_rollouts(
    there: list[tuple[str, int]],
    asks: list[tuple[str, int]],
    quotas: tuple[int, int],
    minutes: int,
    data: st.DataObject,
) -> None:
    kinds = {f"h{i}": kind(one) for i, one in enumerate(there)} | {
        f"x{i}": kind(one) for i, one in enumerate(asks)
    }
    held: dict[str, str] = {}
    for i in range(len(there)):
        at = data.draw(st.sampled_from(NODES))
        held |= {f"h{i}": at} if _fits(kinds, {**held, f"h{i}": at}) else {}
    kinds = {name: one for name, one in kinds.items() if name in held or name.startswith("x")}
    new, quota = newest(kinds, minutes), min(quotas)

    def legal(places: Places) -> bool:
        coming = [name for name in places if name not in held]
        return _fits(kinds, places) and admitted(kinds, [*held], coming, quota, new)

    def somehow(places: Places) -> bool:
        coming = [name for name in places if name not in held]
        return _fits(kinds, places) and any(
            admitted(kinds, [*held], order, quota, new) for order in permutations(coming)
        )

    names = [name for name in kinds if name not in held]
    agrees(cluster(kinds, held, quotas, minutes), names, held, legal, somehow=somehow)


def _fits(kinds: Mapping[str, Kind], places: Places) -> bool:
    return all(sum(kinds[one][2] for one, at in places.items() if at == name) <= GPUS for name in NODES)
