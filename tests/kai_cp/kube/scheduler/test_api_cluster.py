"""Plans become writes: what is sent, and what is not sent twice."""

from __future__ import annotations

import pytest

from kai_cp import keys
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.promises import failures_of
from kai_cp.reader.annotations import failures_noted
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import bind, evict, group, node, pod
from tests.kai_cp.kube.scheduler.conftest import Setup
from tests.kai_cp.kube.stub import QUICK, StubServer


def test_a_bind_is_a_bind_request(setup: Setup) -> None:
    results = setup.apply(Plan(decisions=(bind("p0", "n", gpu_groups=("a",)),)))
    assert [result.outcome for result in results] == ["done"]
    request = setup.server.get(r.BIND_REQUESTS, "ns", "p0")
    assert request is not None
    assert request["metadata"]["labels"] == {"selected-node": "n"}
    assert request["metadata"]["ownerReferences"][0]["uid"] == "uid-p0"
    assert request["spec"] == {
        "podName": "p0",
        "selectedNode": "n",
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"},
        "selectedGPUGroups": ["a"],
    }


def test_the_decision_shows_before_the_watch_does(setup: Setup) -> None:
    setup.cache.stop()
    setup.apply(Plan(decisions=(bind("p0", "n"),)))
    assert [b["metadata"]["name"] for b in setup.live.snapshot()["rawObjects"]["bindRequests"]] == ["p0"]


def test_the_same_decision_again_is_done_already(setup: Setup) -> None:
    plan = Plan(decisions=(bind("p0", "n"),))
    setup.apply(plan)
    assert setup.apply(plan)[0].outcome == "done"
    assert setup.apply(Plan(decisions=(bind("p0", "n", gpu_groups=("x",)),)))[0].outcome == "conflict"


@pytest.mark.parametrize("answers", [0, 1])
def test_an_order_whose_answer_is_lost_is_done(setup: Setup, answers: int) -> None:
    """Without the watch: the server is asked. With one answer it is that the request exists."""
    setup.cache.stop()
    lost = iter([True] * (QUICK.attempts - answers))
    setup.server.lost = lambda m, p: m == "POST" and "/bindrequests" in p and next(lost, False)
    results = setup.apply(Plan(decisions=(bind("p0", "n"),)))
    assert [result.outcome for result in results] == ["done"]
    raw = setup.live.snapshot()["rawObjects"]
    assert [request["metadata"]["name"] for request in raw["bindRequests"]] == ["p0"]
    assert keys.LAST_START in raw["podGroups"][0]["metadata"]["annotations"]


@pytest.mark.parametrize("uid", ["uid-p0", "earlier"])
def test_another_order_of_the_name_is_a_conflict(setup: Setup, uid: str) -> None:
    """It goes if it was made for an earlier pod."""
    setup.cache.stop()
    owner = {"kind": "Pod", "name": "p0", "uid": uid}
    meta = {"name": "p0", "namespace": "ns", "ownerReferences": [owner]}
    setup.server.put(r.BIND_REQUESTS, {"metadata": meta, "spec": {"podName": "p0", "selectedNode": "m"}})
    assert setup.apply(Plan(decisions=(bind("p0", "n"),)))[0].outcome == "conflict"
    assert (setup.server.get(r.BIND_REQUESTS, "ns", "p0") is None) == (uid == "earlier")


def test_an_order_that_the_server_refuses_has_failed(setup: Setup) -> None:
    setup.server.faults = lambda m, p: (500, {}) if m == "POST" and "/bindrequests" in p else None
    assert setup.apply(Plan(decisions=(bind("p0", "n"),)))[0].outcome == "failed"
    assert setup.live.snapshot()["rawObjects"]["bindRequests"] == []


def test_starts_and_evictions_are_stamped(setup: Setup) -> None:
    """A group starts with what is bound, though surplus is nominated beside it."""
    surplus = Decision("Nominate", PodKey("ns", "p1"), GroupKey("ns", "g"), "n", "allocate")
    setup.apply(Plan(decisions=(bind("p0", "n"), surplus)))
    shown = setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"]["annotations"]
    assert shown == {"kai.scheduler/last-start-timestamp": "1970-01-01T00:16:40Z"}
    setup.settle("p0")
    annotations = until(
        lambda: (setup.server.get(r.POD_GROUPS, "ns", "g") or {})["metadata"].get("annotations")
    )
    assert annotations == {"kai.scheduler/last-start-timestamp": "1970-01-01T00:16:40Z"}
    setup.apply(Plan(decisions=(evict("p1", "n", triggers=(GroupKey("ns", "high"),)),)))
    shown = setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"]["annotations"]
    assert "kai.scheduler/last-eviction-timestamp" in shown
    until(
        lambda: (
            "kai.scheduler/last-eviction-timestamp"
            in (setup.server.get(r.POD_GROUPS, "ns", "g") or {})["metadata"]["annotations"]
        )
    )
    event = until(lambda: [e for e in setup.server.requests("POST", "/events") if e["reason"] == "Evict"])[0]
    assert event["metadata"]["annotations"] == {
        "num-evicted-pods": "1",
        "evictor-action-type": "preempt",
        "evictor-pod-group-name": "high",
        "evictor-pod-group-namespace": "ns",
    }
    assert event["involvedObject"]["kind"] == "PodGroup"


def test_stale_evictions_leave_the_eviction_time_alone(setup: Setup) -> None:
    setup.apply(Plan(decisions=(evict("p1", "n", action="stalegangeviction"),)))
    assert setup.writer.drain(PATIENCE_SECONDS)
    found = setup.server.get(r.POD_GROUPS, "ns", "g")
    assert found is not None
    assert "annotations" not in found["metadata"]


def test_a_pod_is_not_evicted_twice(setup: Setup) -> None:
    setup.server.put(r.PODS, pod("runs", node="n", phase="Running"))
    until(lambda: setup.cache.stores[r.PODS].get(("ns", "runs")))
    plan = Plan(decisions=(evict("runs", "n"),))
    assert setup.apply(plan)[0].outcome == "done"
    assert setup.apply(plan)[0].outcome == "conflict"
    assert len(setup.server.requests("DELETE", "/pods/")) == 1


def test_failed_requests_are_cleaned_and_their_pods_held_back(setup: Setup) -> None:
    setup.apply(Plan(decisions=(bind("p0", "n"),)))
    request = setup.server.get(r.BIND_REQUESTS, "ns", "p0")
    assert request is not None
    setup.backoff.failed("uid-p0", 1000.0)
    setup.server.put(r.BIND_REQUESTS, {**request, "status": {"phase": "Failed"}})
    until(lambda: setup.backoff.held("uid-p0", 1001.0))
    setup.live.tidy()
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p0") is None
    shown = {p["metadata"]["name"]: p for p in setup.live.snapshot()["rawObjects"]["pods"]}
    assert shown["p0"]["spec"]["schedulingGates"]
    assert "schedulingGates" not in shown["p1"]["spec"]


def test_requests_for_lost_nodes_or_earlier_pods_are_cleaned(setup: Setup) -> None:
    setup.apply(Plan(decisions=(bind("p0", "n"), bind("p1", "n"))))
    setup.server.remove(r.PODS, "ns", "p1")
    setup.server.put(r.PODS, {**pod("p1"), "metadata": {**pod("p1")["metadata"], "uid": "another"}})
    until(lambda: (setup.cache.stores[r.PODS].get(("ns", "p1")) or pod("x"))["metadata"]["uid"] == "another")
    setup.live.tidy()
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p1") is None
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p0") is not None
    setup.server.remove(r.NODES, "", "n")
    until(lambda: not len(setup.cache.stores[r.NODES]))
    setup.live.tidy()
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p0") is None


@pytest.mark.parametrize("spec", [None, {}, {"podName": "p0"}, {"selectedNode": "gone"}])
def test_a_request_that_names_no_pod_or_no_node_is_cleaned(setup: Setup, spec: dict[str, str] | None) -> None:
    """KAI's definition requires neither."""
    request = {"metadata": {"namespace": "ns", "name": "odd", "creationTimestamp": "2026-11-20T12:00:00Z"}}
    setup.server.put(r.BIND_REQUESTS, request if spec is None else {**request, "spec": spec})
    until(lambda: setup.cache.stores[r.BIND_REQUESTS].get(("ns", "odd")))
    setup.live.catch_up()
    assert setup.live.tidy()
    assert setup.server.get(r.BIND_REQUESTS, "ns", "odd") is None


def test_a_request_that_could_not_be_deleted_is_tried_again(setup: Setup) -> None:
    """A conflict does not mean that it is gone, and then the pod would wait for it for ever."""
    setup.apply(Plan(decisions=(bind("p0", "n"),)))
    request = setup.server.get(r.BIND_REQUESTS, "ns", "p0")
    assert request is not None
    setup.backoff.failed("uid-p0", 1000.0)
    setup.server.put(r.BIND_REQUESTS, {**request, "status": {"phase": "Failed"}})
    until(lambda: setup.backoff.held("uid-p0", 1001.0))
    setup.server.faults = lambda m, _p: (409, {}) if m == "DELETE" else None
    assert not setup.live.tidy()
    setup.server.faults = lambda _m, _p: None
    assert setup.live.tidy()
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p0") is None


def test_binds_that_failed_in_a_row_are_noted(setup: Setup) -> None:
    """The note outlives the process, and is of the pod whose bind failed most often while that waits."""

    def failed(name: str) -> tuple[str, int]:
        setup.apply(Plan(decisions=(bind(name, "n"),)))
        request = setup.server.get(r.BIND_REQUESTS, "ns", name)
        assert request is not None
        setup.server.put(r.BIND_REQUESTS, {**request, "status": {"phase": "Failed"}})
        until(
            lambda: api_objects.failed_for_good(
                setup.cache.stores[r.BIND_REQUESTS].get(("ns", name)) or request
            )
        )
        assert setup.live.tidy()
        assert setup.live.tidy(), "it is counted once"
        note = setup.live.snapshot()["rawObjects"]["podGroups"][0]["metadata"]["annotations"][keys.FAILURES]
        found = failures_noted(note)
        assert found is not None
        assert found.last == 1000.0
        return found.uid, found.times

    assert [failed("p0"), failed("p0")] == [("uid-p0", 1), ("uid-p0", 2)]
    setup.backoff.succeeded("uid-p0")  # what a new process knows
    assert failed("p0") == ("uid-p0", 3)
    assert failed("p1") == ("uid-p0", 3)
    assert setup.writer.drain(PATIENCE_SECONDS)
    written = setup.server.get(r.POD_GROUPS, "ns", "g")
    assert written is not None
    assert failures_noted(written["metadata"]["annotations"][keys.FAILURES])
    setup.server.put(r.PODS, pod("p0", node="n"))
    until(lambda: (setup.cache.stores[r.PODS].get(("ns", "p0")) or pod("p0"))["spec"].get("nodeName"))
    assert failed("p1") == ("uid-p1", 2)


def test_evictions_for_a_pod_that_lost_its_place_are_counted(setup: Setup) -> None:
    """p0 was promised n; others stop for it again, and again when it names no node any more. What follows
    a bind that failed is counted with that. An eviction that stops no pod does not count."""
    key = GroupKey("ns", "g")
    for name in "vwxyz":
        setup.server.put(r.PODS, pod(name, node="n"))
    until(lambda: all(setup.cache.stores[r.PODS].get(("ns", name)) for name in "vwxyz"))

    def stop(*victims: str) -> int:
        place = Decision("Nominate", PodKey("ns", "p0"), key, "n", "preempt")
        setup.apply(Plan(decisions=(place, *[evict(name, "n", triggers=(key,)) for name in victims])))
        note = setup.live.annotations.of(key).get(keys.FAILURES)
        return failures_of(note, "uid-p0")

    assert [stop("v"), stop(), stop("gone"), stop("w")] == [0, 0, 0, 1]
    setup.apply(Plan())
    assert stop("x") == 2
    setup.apply(Plan())
    setup.backoff.failed("uid-p0", 1000.0)
    assert stop("y") == 2
    assert stop("z") == 3


def test_a_refused_order_is_reported_and_backed_off(setup: Setup) -> None:
    setup.server.faults = lambda m, p: (422, {}) if m == "POST" and "bindrequests" in p else None
    result = setup.apply(Plan(decisions=(bind("p0", "n"),)))[0]
    assert result.outcome == "failed"
    assert not setup.backoff.held("uid-p0", 1001.0), "a first failure holds nothing back"
    setup.apply(Plan(decisions=(bind("p0", "n"),)))
    assert setup.backoff.held("uid-p0", 1001.0)
    found = setup.server.get(r.PODS, "ns", "p0")
    assert found is not None
    assert found["status"]["conditions"][0]["reason"] == "BindingError"
    assert '"times": 2' in setup.live.annotations.of(GroupKey("ns", "g"))[keys.FAILURES]


@pytest.mark.parametrize("defect", [False, True])
def test_a_report_is_asked_for_where_the_defect_is_ours_alone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defect: bool
) -> None:
    """The server refuses the credentials; or the call is outside the access that this process declares."""
    setup.server.faults = lambda m, _p: (401, {}) if m == "POST" else None
    if defect:
        monkeypatch.setattr(setup.live._transport, "_access", lambda *_: False)  # noqa: SLF001
    assert setup.apply(Plan(decisions=(bind("p0", "n"),)))[0].outcome == "failed"
    assert ("report this defect" in caplog.text) == defect


def test_decisions_about_missing_pods_and_nodes_are_gone(setup: Setup) -> None:
    plan = Plan(decisions=(bind("nobody", "n"), bind("p0", "nowhere")))
    assert [result.outcome for result in setup.apply(plan)] == ["gone", "gone"]


def test_the_pool_is_written_to_pod_and_request(server: StubServer) -> None:
    server.put(r.PODS, pod("p"))
    labelled = node("n")
    labelled["metadata"]["labels"]["pool"] = "a"
    server.put(r.NODES, labelled)
    server.put(r.NODES, node("elsewhere"))
    setup = Setup(server, nodepool_label_key="pool", partition_label_value="a")
    assert [n["metadata"]["name"] for n in setup.live.snapshot()["rawObjects"]["nodes"]] == ["n"]
    setup.apply(Plan(decisions=(bind("p", "n"),)))
    setup.writer.busy = lambda: False
    assert setup.writer.drain(PATIENCE_SECONDS)
    request, found = server.get(r.BIND_REQUESTS, "ns", "p"), server.get(r.PODS, "ns", "p")
    assert request is not None
    assert found is not None
    assert request["metadata"]["labels"]["pool"] == "a"
    assert found["metadata"]["labels"]["pool"] == "a"
    setup.close()


def test_the_disruption_condition_comes_before_the_eviction(server: StubServer) -> None:
    server.put(r.PODS, pod("p", node="n", phase="Running"))
    server.put(r.NODES, node("n"))
    setup = Setup(server, update_pod_eviction_condition=True)
    setup.apply(Plan(decisions=(evict("p", "n"),)))
    methods = [m for m, path, _ in server.log if "/pods/p" in path]
    assert methods == ["PATCH", "DELETE"]
    setup.close()


@pytest.mark.parametrize(("own", "told"), [(None, None), (3000, None), (3001, 3000), (31_536_000, 3000)])
def test_an_evicted_pod_ends_while_its_place_is_still_waited_for(
    server: StubServer, own: int | None, told: int | None
) -> None:
    """A pod that ends in an hour or later frees nothing, so its trigger would evict another one."""
    for name in ("p", "q"):
        item = pod(name, node="n", phase="Running")
        item["spec"] |= {} if own is None else {"terminationGracePeriodSeconds": own}
        server.put(r.PODS, item)
    server.put(r.NODES, node("n"))
    server.allowed = 1
    setup = Setup(server)
    setup.apply(Plan(decisions=(evict("p", "n"), evict("q", "n", action="defrag"))))
    (deleted,), (evicted,) = server.requests("DELETE", "/pods/p"), server.requests("POST", "/pods/q/eviction")
    assert deleted.get("gracePeriodSeconds") == evicted["deleteOptions"].get("gracePeriodSeconds") == told
    setup.close()


def disrupted(server: StubServer, name: str = "p") -> str | None:
    """The status of the pod's condition DisruptionTarget."""
    found = server.get(r.PODS, "ns", name)
    assert found is not None
    entry = api_objects.condition(found["status"].get("conditions"), "DisruptionTarget")
    return None if entry is None else str(entry["status"])


def running(server: StubServer, **options: object) -> Setup:
    server.put(r.PODS, pod("p", node="n", phase="Running"))
    server.put(r.NODES, node("n"))
    return Setup(server, **options)


@pytest.mark.parametrize(("answer", "outcome"), [(403, "failed"), (409, "conflict"), (500, "failed")])
def test_a_refused_eviction_leaves_no_disruption_condition(
    server: StubServer, answer: int, outcome: str
) -> None:
    """The pod runs on, and its own failures are not to count as disruptions."""
    server.faults = lambda m, _p: (answer, {}) if m == "DELETE" else None
    setup = running(server, update_pod_eviction_condition=True)
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == outcome
    assert disrupted(server) == "False"
    server.faults = lambda _m, _p: None
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == "done"
    assert disrupted(server) == "True"
    setup.close()


def test_an_eviction_whose_answers_are_lost_is_done(server: StubServer) -> None:
    server.lost = lambda m, _p: m == "DELETE"
    setup = running(server, update_pod_eviction_condition=True)
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == "done"
    assert disrupted(server) == "True"
    setup.close()


def test_a_pod_whose_condition_is_refused_is_not_evicted(server: StubServer) -> None:
    """As with KAI: without the condition its owner would count the eviction as a failure."""
    server.faults = lambda m, p: (403, {}) if m == "PATCH" and p.endswith("/status") else None
    setup = running(server, update_pod_eviction_condition=True)
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == "failed"
    assert not server.requests("DELETE", "/pods/")
    setup.close()


def test_a_condition_of_another_program_stays(server: StubServer) -> None:
    item = pod("p", node="n", phase="Running")
    item["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "ByTaint"}]
    server.put(r.PODS, item)
    server.put(r.NODES, node("n"))
    server.faults = lambda m, _p: (403, {}) if m == "DELETE" else None
    setup = Setup(server, update_pod_eviction_condition=True)
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == "failed"
    assert disrupted(server) == "True"
    assert not server.requests("PATCH", "/status")
    setup.close()


@pytest.mark.parametrize(("budgets", "action"), [(True, "preempt"), (False, "defrag")])
def test_a_budget_that_others_used_up_is_a_conflict(server: StubServer, budgets: bool, action: str) -> None:
    """The server has the last word: two writers, each with a snapshot of one free eviction."""
    for name in ("p", "q"):
        server.put(r.PODS, pod(name, node="n", phase="Running"))
    server.put(r.NODES, node("n"))
    server.allowed = 1
    setup = Setup(server, budgets=budgets, update_pod_eviction_condition=True)
    plans = [Plan(decisions=(evict(name, "n", action=action),)) for name in ("p", "q")]
    assert [setup.apply(plan)[0].outcome for plan in plans] == ["done", "conflict"]
    assert not server.requests("DELETE", "/pods/")
    assert len(server.requests("POST", "/eviction")) == 2, "a full budget is not asked again and again"
    assert server.requests("POST", "/p/eviction")[0]["deleteOptions"] == {"preconditions": {"uid": "uid-p"}}
    assert disrupted(server, "q") is None
    shown = {item["metadata"]["name"]: item for item in setup.live.snapshot()["rawObjects"]["pods"]}
    assert "deletionTimestamp" in shown["p"]["metadata"], "at once, not with the watch"
    assert "deletionTimestamp" not in shown["q"]["metadata"]
    server.allowed = 1
    assert setup.apply(plans[1])[0].outcome == "done"
    setup.close()


def test_no_budget_is_asked_where_none_counts(server: StubServer) -> None:
    setup = running(server)
    assert setup.apply(Plan(decisions=(evict("p", "n"),)))[0].outcome == "done"
    assert not server.requests("POST", "/eviction")
    setup.close()


def test_a_new_process_writes_what_the_last_one_did_not_come_to(server: StubServer) -> None:
    labelled = node("n")
    labelled["metadata"]["labels"]["pool"] = "a"
    server.put(r.NODES, labelled)
    for name, told in (
        ("fresh", {}),
        ("near", {keys.LAST_START: "2026-11-20T12:00:20Z"}),
        ("before", {keys.LAST_START: "2026-11-19T12:00:00Z"}),
        ("later", {keys.LAST_START: "2026-11-20T13:00:00Z"}),
        ("broken", {keys.LAST_START: "yesterday"}),
    ):
        item = group(name)
        item["metadata"] |= {"annotations": told, "labels": {"pool": "a"}}
        server.put(r.POD_GROUPS, item)
        for i in range(2):
            made = server.put(r.PODS, pod(f"{name}-{i}", name, node="n", phase="Running"))
            decision = bind(f"{name}-{i}", "n", group=name)
            request = api_objects.bind_request(made, labelled, decision, ("pool", "a"))
            request["metadata"]["creationTimestamp"] = f"2026-11-20T12:00:{40 - i}Z"
            server.put(r.BIND_REQUESTS, {**request, "status": {"phase": "Succeeded"}})
    setup = Setup(server, nodepool_label_key="pool", partition_label_value="a")
    setup.live.catch_up()
    assert setup.writer.drain(PATIENCE_SECONDS)
    starts = {}
    for name in ("fresh", "near", "before", "later", "broken"):
        found = server.get(r.POD_GROUPS, "ns", name)
        assert found is not None
        starts[name] = found["metadata"]["annotations"].get(keys.LAST_START)
    first = "2026-11-20T12:00:39Z"
    assert starts == {
        "fresh": first,
        "near": "2026-11-20T12:00:20Z",
        "before": first,
        "later": "2026-11-20T13:00:00Z",
        "broken": first,
    }
    one = server.get(r.PODS, "ns", "near-1")
    assert one is not None
    assert one["metadata"]["labels"]["pool"] == "a"
    sent = len(server.requests("PATCH"))
    setup.live.catch_up()
    assert setup.writer.drain(PATIENCE_SECONDS)
    assert len(server.requests("PATCH")) == sent
    setup.close()


def test_a_decision_that_cannot_be_written_is_one_failed_decision(setup: Setup) -> None:
    hostile = {"gpu-fraction-num-devices": "x", "gpu-fraction": "half"}
    setup.server.put(r.PODS, pod("p1") | {"metadata": pod("p1")["metadata"] | {"annotations": hostile}})
    until(
        lambda: (
            api_objects.annotations_of(setup.cache.stores[r.PODS].get(("ns", "p1")) or pod("p1")) == hostile
        )
    )
    results = setup.apply(Plan(decisions=tuple(bind(f"p{i}", "n") for i in range(3))))
    assert [result.outcome for result in results] == ["done", "failed", "done"]
    assert results[1].message == 'metadata.annotations[gpu-fraction]: "half" is not a number'


def test_a_pod_that_grows_too_large_while_it_is_held_stops_no_cycle(setup: Setup) -> None:
    """Its owner may add tolerations at any time; whatever was decided about it, others are decided on."""
    now = 1000.0
    for _ in range(3):
        setup.backoff.failed("uid-p0", now)
    large = pod("p0")
    large["spec"]["tolerations"] = [{"key": f"k{i}", "operator": "Exists"} for i in range(20_000)]
    setup.server.put(r.PODS, large)
    pods = setup.cache.stores[r.PODS]
    until(lambda: pods.get(("ns", "p0")) is None)
    assert pods.find(("ns", "p0")) is not None
    shown = {one["metadata"]["name"]: one for one in setup.live.snapshot()["rawObjects"]["pods"]}
    assert "setAside" in shown["p0"]
    assert "spec" in shown["p1"]
    setup.live.tidy()
    setup.apply(Plan((bind("p1", "n"),)))
    assert setup.server.get(r.BIND_REQUESTS, "ns", "p1") is not None
