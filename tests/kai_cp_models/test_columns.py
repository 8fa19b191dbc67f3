"""Columns say what the records say, whatever snapshot came before."""

from __future__ import annotations

import pickle
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.reader import ParseMemo, parse
from kai_cp_models import columns
from kai_cp_models.columns import Columns
from kai_cp_models.pods import ACTIVE_USED, ALLOCATED, GpuKind, PodStatus
from kai_cp_models.snapshot import Derived, Snapshot
from tests.kai_cp.reader.raw import NOW
from tests.support.changing import Changing
from tests.support.worlds import cluster, group, pod, queue


def holds(found: Columns, snapshot: Snapshot) -> bool:
    """Whether the columns say what the records say."""
    pods, groups, nodes = snapshot.pods, snapshot.groups, snapshot.nodes
    names, keys = [node.name for node in nodes], [group.key for group in groups]
    queues = [queue.name for queue in snapshot.queues]
    assert found.shows(snapshot)
    assert [names[i] if i >= 0 else None for i in found.node] == [
        pod.node if pod.node in names else None for pod in pods
    ]
    assert [keys[i] if i >= 0 else None for i in found.group] == [
        pod.group if pod.group in keys else None for pod in pods
    ]
    assert found.specs == tuple(dict.fromkeys(pod.spec for pod in pods))
    assert [found.specs[i] for i in found.spec] == [pod.spec for pod in pods]
    for statuses in (ACTIVE_USED, ALLOCATED, (PodStatus.PENDING,)):
        assert found.having(statuses).tolist() == [pod.status in statuses for pod in pods]
    shares = found.of_spec(lambda spec: spec.gpu.kind is GpuKind.FRACTION)
    assert shares.tolist() == [pod.spec.gpu.kind is GpuKind.FRACTION for pod in pods]
    alike = dict(zip(found.gpu_groups.tolist(), (pod.gpu_groups for pod in pods), strict=True))
    assert [alike[code] for code in found.gpu_groups.tolist()] == [pod.gpu_groups for pod in pods]
    assert found.reservation.tolist() == [pod.reservation for pod in pods]
    assert found.foreign.tolist() == [not (p.ours or p.reservation or p.scaling) for p in pods]
    assert [queues[i] if i >= 0 else None for i in found.queue] == [
        group.queue if group.queue in queues else None for group in groups
    ]
    assert found.preemptible.tolist() == [group.preemptible for group in groups]
    assert found.of_pods.by_key == {pod.key: pod for pod in pods}
    assert found.of_groups.by_key == {group.key: group for group in groups}
    members = {
        key: tuple(sorted((p for p in pods if p.group == key), key=lambda p: p.sort_key)) for key in keys
    }
    assert dict(snapshot.members) == members
    waiting = {pod.group for pod in pods if pod.status is PodStatus.PENDING}
    assert [keys[i] for i in found.waiting] == [key for key in keys if key in waiting]
    told_apart = {
        key: {(p.spec, p.subgroup, p.status, p.nominated_node is None) for p in members[key]} for key in keys
    }
    kinds = [
        (one.queue, one.root, one.priority, one.preemptible, len(members[one.key]), *asked)
        if len(asked := told_apart[one.key]) == 1 and one.key in waiting
        else one.key
        for one in groups
    ]
    assert len({*zip(found.alike.tolist(), kinds, strict=True)}) == len({*found.alike}) == len({*kinds})
    return True


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 6), max_size=6), st.sampled_from((0, 10_000)))
def test_columns_follow_any_snapshot(seed: int, changes: list[int], spare: int) -> None:
    """``changes``: how many objects change before each reading. Every snapshot follows the one before it,
    an earlier one, one without pods, and one in which pods have no group and groups no queue. ``spare``: how
    many codes may be left over."""
    with patch.object(columns, "_SPARE", spare):
        _follow_any(seed, changes)


def _follow_any(seed: int, changes: list[int]) -> None:
    cluster, memo = Changing(seed), ParseMemo()
    seen: list[Snapshot] = []
    for turn, count in enumerate((0, *changes)):
        for _ in range(count):
            cluster.step()
        snapshot = parse(cluster.raw, now=NOW + turn, memo=memo)
        assert holds(snapshot.columns, snapshot)
        seen.append(snapshot)
    fewer = replace(seen[0], groups=seen[0].groups[1:], queues=seen[0].queues[1:], nodes=seen[0].nodes[1:])
    for before in (fewer, replace(seen[0], pods=()), *seen):
        last = Columns(before)
        assert holds(last, replace(before, derived=Derived()))
        for snapshot in (seen[-1], fewer):
            assert holds(Columns(snapshot, last), replace(snapshot, derived=Derived()))


def test_groups_with_promised_nodes_are_alike_whichever_nodes_these_are() -> None:
    waiting = [pod("a-0"), pod("b-0"), pod("c-0", nominated_node="n1"), pod("d-0", nominated_node="n2")]
    alike = cluster(waiting, groups=map(group, "abcd"), queues=[queue()]).columns.alike.tolist()
    assert (alike[0] == alike[1], alike[2] == alike[3], len({*alike})) == (True, True, 2)


def test_another_process_knows_nothing_of_identities() -> None:
    snapshot = parse(Changing(1).raw, now=NOW, memo=ParseMemo())
    assert snapshot.columns
    copy = pickle.loads(pickle.dumps(snapshot))
    assert copy == snapshot
    assert copy.derived == Derived()
    assert holds(copy.columns, copy)
