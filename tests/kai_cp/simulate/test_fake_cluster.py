"""The fake cluster behaves like a cluster with its binder and kubelets."""

from __future__ import annotations

import copy
import time

from kai_cp.reader import ParseMemo, parse
from kai_cp.simulate.fake_cluster import FakeCluster
from kai_cp_models.engine import decide
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey, PodStatus
from kai_cp_models.settings import Settings
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import bind, evict, group, node, pod, queue, snapshot

NOW = 1_800_000_000.0


def cluster(grace: int = 30, **options: object) -> FakeCluster:
    pods = [pod("a"), pod("b")]
    for item in pods:
        item["spec"]["terminationGracePeriodSeconds"] = grace
    raw = snapshot(pods=pods, nodes=[node("n")], queues=[queue()], podGroups=[group("g", 2)])
    return FakeCluster(raw, now=NOW, **options)  # type: ignore[arg-type]


def statuses(twin: FakeCluster) -> dict[str, PodStatus]:
    return {pod.key.name: pod.status for pod in parse(twin.snapshot(), now=twin.now).pods}


def test_a_pod_is_binding_then_bound_then_running() -> None:
    twin = cluster(bind_seconds=2.0, start_seconds=3.0)
    assert [r.outcome for r in twin.apply(Plan(decisions=(bind("a", "n"),)))] == ["done"]
    assert statuses(twin)["a"] is PodStatus.BINDING
    twin.advance(2.0)
    assert statuses(twin)["a"] is PodStatus.BOUND
    twin.advance(3.0)
    assert statuses(twin) == {"a": PodStatus.RUNNING, "b": PodStatus.PENDING}
    assert [what for _, what, _ in twin.log] == ["bound", "running"]


def test_a_reader_that_remembers_sees_every_change() -> None:
    """Readers know an object with a resourceVersion by its identity."""
    raw = snapshot(pods=[pod("a")], nodes=[node("n")], queues=[queue()], podGroups=[group("g", 1)])
    for item in (item for items in raw["rawObjects"].values() for item in items):
        item["metadata"] |= {"uid": item["metadata"]["name"], "resourceVersion": "1"}
    twin, memo = FakeCluster(raw, now=NOW), ParseMemo()
    parse(twin.snapshot(), now=NOW, memo=memo)
    twin.apply(Plan(decisions=(bind("a", "n"),)))
    twin.note(GroupKey("ns", "g"), {"kai-cp/reserve": "true"})
    seen = parse(twin.snapshot(), now=NOW, memo=memo)
    assert seen.groups[0].last_start == NOW
    assert seen.groups[0].notes.reserve is True
    assert seen.pods[0].status is PodStatus.RUNNING


def test_a_group_starts_with_its_minimum_though_surplus_waits() -> None:
    """It is protected for its minimum run time from then on (4.6)."""
    twin, key = cluster(), GroupKey("ns", "g")
    nominated = Decision("Nominate", PodKey("ns", "b"), key, "n", "allocate")
    twin.apply(Plan(decisions=(bind("a", "n"), nominated)))
    assert parse(twin.snapshot(), now=twin.now).group_by_key[key].last_start == NOW
    twin.advance(60.0)
    twin.apply(Plan(decisions=(bind("b", "n"),)))
    assert parse(twin.snapshot(), now=twin.now).group_by_key[key].last_start == NOW


def test_waiting_pods_name_the_nodes_that_the_last_plan_promised() -> None:
    """What is bound meanwhile keeps its name, as Kubernetes leaves it, too."""
    twin, key = cluster(bind_seconds=5.0), GroupKey("ns", "g")

    def named() -> list[str | None]:
        return [pod.nominated_node for pod in parse(twin.snapshot(), now=twin.now).pods]

    places = [Decision("Nominate", PodKey("ns", name), key, "n", "preempt") for name in ("a", "b")]
    twin.apply(Plan(decisions=tuple(places)))
    assert named() == ["n", "n"]
    twin.apply(Plan(decisions=(bind("a", "n"),)))
    assert named() == ["n", None]
    twin.apply(Plan())
    assert named() == ["n", None]


def test_evictions_for_a_pod_that_lost_its_place_are_counted() -> None:
    """a was promised n; others stop for it again, and again when it names no node any more. An eviction that
    stops no pod does not count."""
    twin, key = cluster(), GroupKey("ns", "g")

    def failed() -> int | None:
        noted = parse(twin.snapshot(), now=twin.now).groups[0].notes.failures
        return None if noted is None else noted.times

    def stop(*names: str) -> int | None:
        place = Decision("Nominate", PodKey("ns", "a"), key, "n", "preempt")
        twin.apply(Plan(decisions=(place, *[evict(name, "n", triggers=(key,)) for name in names])))
        return failed()

    for name in "vwx":
        twin.add_pod(pod(name, node="n"))
    assert [stop("v"), stop(), stop("gone"), stop("w")] == [None, None, None, 1]
    twin.apply(Plan())
    assert stop("x") == 2


def test_nothing_is_decided_twice() -> None:
    twin = cluster(bind_seconds=5.0)
    plan = Plan(decisions=(bind("a", "n"),))
    twin.apply(plan)
    assert twin.apply(plan)[0].outcome == "conflict"


def test_termination_is_graceful_and_the_pod_comes_back() -> None:
    twin = cluster(recreate=True)
    twin.apply(Plan(decisions=(bind("a", "n"),)))
    twin.apply(Plan(decisions=(evict("a", "n"),)))
    assert statuses(twin)["a"] is PodStatus.RELEASING
    twin.advance(29.0)
    assert "a" in statuses(twin)
    twin.advance(1.0)
    assert statuses(twin) == {"a.r1": PodStatus.PENDING, "b": PodStatus.PENDING}


def test_an_evicted_pod_counts_as_leaving_however_long_its_grace() -> None:
    """The next cycle waits for its place, instead of evicting another pod."""
    twin = cluster(grace=31_536_000)
    twin.apply(Plan(decisions=(bind("a", "n"),)))
    twin.apply(Plan(decisions=(evict("a", "n"),)))
    assert statuses(twin)["a"] is PodStatus.RELEASING
    twin.advance(3000.0)
    assert "a" not in statuses(twin)


def test_a_failed_bind_frees_the_pod_again() -> None:
    twin = cluster(fails=lambda request: "no" if request["spec"]["podName"] == "a" else "")
    twin.apply(Plan(decisions=(bind("a", "n"), bind("b", "n"))))
    assert twin.snapshot()["rawObjects"]["bindRequests"][0]["status"]["phase"] == "Failed"
    twin.apply(Plan())
    assert statuses(twin) == {"a": PodStatus.PENDING, "b": PodStatus.RUNNING}


def test_a_snapshot_stays_as_it_was() -> None:
    twin = cluster()
    before = twin.snapshot()
    kept = copy.deepcopy(before)
    twin.apply(Plan(decisions=(bind("a", "n"), evict("b", "n"))))
    twin.advance(100.0)
    assert before == kept


def test_the_engine_schedules_it() -> None:
    twin = cluster()
    parsed = parse(twin.snapshot(), now=twin.now)
    twin.apply(decide(parsed, Settings(), deadline=time.monotonic() + PATIENCE_SECONDS))
    assert statuses(twin) == {"a": PodStatus.RUNNING, "b": PodStatus.RUNNING}
    parsed = parse(twin.snapshot(), now=twin.now)
    assert parsed.group_by_key[GroupKey("ns", "g")].last_start == NOW
    assert parsed.pod_by_key[PodKey("ns", "a")].node == "n"
    assert decide(parsed, Settings(), deadline=time.monotonic() + PATIENCE_SECONDS).decisions == ()
