"""What is known, whatever order news come in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kai_cp.kube import transforms as t
from kai_cp.kube.store import Store
from tests.kai_cp.kube.samples import pod


def item(version: int, name: str = "a", uid: str = "u", **spec: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def test_our_own_write_shows_at_once_and_wakes_nobody() -> None:
    woken: list[int] = []
    store = Store(changed=lambda: woken.append(1))
    store.put(item(1))
    store.put(item(5, node="x"), ours=True)
    store.put(item(3))
    found = store.get(("", "a"))
    assert found is not None
    assert found["spec"] == {"node": "x"}
    assert len(woken) == 1


def test_an_old_list_does_not_undo_our_write() -> None:
    store = Store()
    store.put(item(10, "new"), ours=True)
    store.replace([item(4, "old")], "8")
    assert [i["metadata"]["name"] for i in store.all()] == ["new", "old"]


def test_a_list_drops_what_left() -> None:
    store = Store()
    store.put(item(3, "gone"))
    store.replace([item(4, "here")], "8")
    assert [i["metadata"]["name"] for i in store.all()] == ["here"]


def test_late_news_about_a_deleted_object() -> None:
    store = Store()
    store.put(item(3))
    store.remove(item(7))
    store.put(item(5))
    assert len(store) == 0
    store.put(item(9, uid="v"))
    assert len(store) == 1


@given(st.permutations(range(1, 7)))
def test_the_latest_version_wins_in_any_order(order: list[int]) -> None:
    store = Store()
    for version in order:
        store.put(item(version, mark=str(version)))
    found = store.get(("", "a"))
    assert found is not None
    assert found["spec"] == {"mark": "6"}


def test_heartbeats_and_conditions_wake_nobody() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]}
    node = {"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {}, "status": status}
    beat = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]}
    assert not t.node_change(node, {**node, "status": beat})
    down = {"conditions": [{"type": "Ready", "status": "False"}]}
    assert t.node_change(node, {**node, "status": down})
    one = pod("p")
    marked = {**one, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}}
    assert not t.pod_change(one, marked)
    assert t.pod_change(one, {**one, "status": {"phase": "Running"}})


def test_a_request_wakes_the_scheduler_when_it_fails() -> None:
    request = {"metadata": {"name": "p"}, "spec": {"selectedNode": "n"}}
    assert not t.request_change(request, {**request, "status": {"phase": "Succeeded"}})
    assert t.request_change(request, {**request, "status": {"phase": "Failed"}})
    assert t.request_change(request, {**request, "spec": {"selectedNode": "m"}})


def test_pods_keep_no_secrets() -> None:
    full = pod("p")
    full["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    full["spec"]["containers"][0] |= {
        "image": "private/image",
        "command": ["run", "--password=x"],
        "env": [
            {"name": "TOKEN", "value": "hunter2"},
            {"name": "REF", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        ],
    }
    kept = str(t.pod(full))
    assert "hunter2" not in kept
    assert "password" not in kept
    assert "private/image" not in kept
    assert "registry" not in kept
    assert "configMapKeyRef" in kept
