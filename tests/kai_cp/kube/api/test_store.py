"""What the store holds, whatever the order in which news arrives."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.store import Store, version_of
from kai_cp.reader.salvage import TOO_DEEP
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import pod


def item(version: int, name: str = "a", uid: str = "u", **spec: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def test_our_own_write_shows_at_once_and_wakes_no_listener() -> None:
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


def test_a_kind_that_is_served_no_more_leaves_nothing() -> None:
    store = Store()
    store.replace([item(4)], "8")
    store.replace([], "")
    assert len(store) == 0
    store.put(item(4))
    assert len(store) == 1, "it may come back"


def test_a_late_answer_brings_nothing_back_that_a_list_no_longer_had() -> None:
    store = Store()
    store.replace([], "8")
    store.put(item(5), ours=True)
    assert len(store) == 0
    store.put(item(9), ours=True)
    assert len(store) == 1


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


def test_heartbeats_and_conditions_wake_no_listener() -> None:
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


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_an_object_that_cannot_be_handed_on_is_named_and_not_used() -> None:
    store = Store(relevant=t.any_change)
    heard: list[tuple[bool, bool]] = []
    store.listen(lambda old, new: heard.append((old is not None, new is not None)))
    store.replace([item(1, "a"), item(2, "deep", free=deep(300)), {"kind": "Odd"}], "3")  # type: ignore[arg-type]
    store.put(item(4, "deep", free=deep(900)))  # type: ignore[arg-type]
    assert [found["metadata"]["name"] for found in store.all()] == ["a"]
    assert store.get(("", "deep")) is None
    assert [found.get("setAside") for found in store.listed()] == [None, TOO_DEEP]
    assert heard == [(False, True)]
    store.put(item(5, "deep"))
    assert [found["metadata"]["name"] for found in store.all()] == ["a", "deep"]
    assert heard == [(False, True)] * 2


def test_no_listener_or_transform_stops_the_news() -> None:
    def odd(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "spec": found["spec"]["needed"]}

    store = Store(transform=odd)
    store.listen(lambda _old, _new: 1 / 0)  # type: ignore[arg-type, return-value]
    store.put(item(1, "a"))
    store.put(item(2, "b", needed="x"))
    assert [found["metadata"]["name"] for found in store.all()] == ["b"]
    assert store.listed()[0]["setAside"] == "it cannot be read: KeyError: 'needed'"


def test_parameters_for_drivers_are_text_until_they_are_written() -> None:
    config = [{"requests": ["r"], "opaque": {"driver": "d", "parameters": {"a": [1]}}}, {"opaque": {}}]
    claim = {
        "metadata": {"name": "c", "managedFields": []},
        "spec": {"devices": {"requests": [], "config": config}},
        "status": {
            "allocation": {"devices": {"results": [], "config": config}},
            "devices": [{"data": deep(900)}],
            "reservedFor": [],
        },
    }
    kept = t.claim(claim)
    text = [{"requests": ["r"], "opaque": {"driver": "d", "parameters": '{"a":[1]}'}}, {"opaque": {}}]
    assert kept["spec"]["devices"] == {"requests": [], "config": text}
    assert set(kept["status"]) == {"allocation", "reservedFor"}
    assert t.with_parameters(kept["status"]["allocation"]) == claim["status"]["allocation"]  # type: ignore[index]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "n", "m"]), st.booleans()), max_size=12)
)
def test_an_index_is_in_step_with_the_objects(changes: list[tuple[str, str, bool]]) -> None:
    store = Store()
    store.put(item(1, "a", node="n"))
    find = store.index(lambda found: filter(None, [found["spec"].get("node")]))
    for version, (name, node, gone) in enumerate(changes, start=2):
        changed = item(version, name, node=node)
        store.remove(changed) if gone else store.put(changed)
        if version % 4 == 0:
            store.replace([item(version, "b", node="m")], str(version))
        for each in ("n", "m"):
            held = [found for found in store.all() if found["spec"].get("node") == each]
            assert sorted(find(each), key=str) == sorted(held, key=str)


def test_an_object_that_cannot_be_indexed_is_found_by_its_key() -> None:
    store = Store()
    find = store.index(lambda found: [found["spec"]["node"]])
    store.put(item(1))
    store.put(item(2, "b", node="n"))
    assert len(find("n")) == 1
    assert store.get(("", "a")) is not None
    store.remove(item(3))
    assert store.get(("", "a")) is None


def test_listeners_hear_changes_in_their_order_whichever_threads_make_them() -> None:
    store, heard = Store(), list[int]()
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_old: object, new: Any) -> None:
        if version_of(new) == 1:
            begun.set()
            goes_on.wait(PATIENCE_SECONDS)

    store.listen(slow)
    store.listen(lambda _old, new: heard.append(version_of(new or {})))
    first = threading.Thread(target=store.put, args=(item(1),))
    first.start()
    assert begun.wait(PATIENCE_SECONDS)
    second = threading.Thread(target=store.put, args=(item(2),), kwargs={"ours": True})
    second.start()
    second.join(0.2)
    goes_on.set()
    first.join(PATIENCE_SECONDS)
    second.join(PATIENCE_SECONDS)
    assert heard == [1, 2], "who keeps what was heard last would keep the older state"
