"""No JSON, however odd, makes the reader raise; neither order nor memory ever changes what is read."""

from __future__ import annotations

import contextlib
import copy
import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.reader import ParseMemo, UnreadableSnapshot, load, parse
from kai_cp.reader.facts import FactReader
from kai_cp.reader.fields import Malformed
from kai_cp.reader.podspec import SpecDraft
from kai_cp_models.pods import ACTIVE_USED
from kai_cp_models.rules.stateful.dra.catalog import CATALOG
from kai_cp_models.settings import Limits
from kai_cp_models.snapshot import Snapshot
from tests.kai_cp.reader.raw import NOW
from tests.kai_cp.reader.rich import rich
from tests.support.changing import Changing

Raw = dict[str, Any]

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(["", "abc", "-1", "1e9", "NaN", "0.5", "1.7", "2026-11-20T12:00:00Z", "n1", "g", "q"]),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([[]]),
    st.just([{}]),
    st.just({"": None}),
    st.just({"a": 1}),
)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        found.append((value, key))
        if isinstance(inner, dict | list):
            places(inner, found)
    return found


def plain(found: Snapshot) -> Snapshot:
    """Without the catalog of devices, which is made of the raw objects beside it and has no equality."""
    return replace(found, extras=found.extras.having(CATALOG, None))


def check(found: Snapshot) -> None:
    """What the rest of the program relies on."""
    queues = set(found.queue_by_name)
    assert all(row.parent is None or row.parent in queues for row in found.queues)
    assert set(found.queue_path) == queues
    width = len(found.dimensions)
    assert all(len(row.allocatable) == width for row in found.nodes)
    for row in found.pods:
        assert len(row.spec.requests) == width
        assert all(isinstance(x, int) and x >= 0 for x in row.spec.requests)
        assert row.group is None or row.group in found.group_by_key
        assert row.node is None or (row.node in found.node_index and row.status in ACTIVE_USED)
        hash(row.spec)
    for keys in ([row.name for row in found.nodes], [row.key for row in found.pods]):
        assert keys == sorted(set(keys))
    for item in found.set_aside:
        assert item.item
        assert item.reason
        assert "\n" not in item.item + item.reason


def test_the_unchanged_snapshot_is_clean() -> None:
    found = parse(rich(), now=NOW)
    check(found)
    assert found.set_aside == ()
    assert len(found.pods) == 5


@settings(max_examples=250)
@given(st.data())
def test_changed_values_never_raise(data: st.DataObject) -> None:
    raw = rich()
    for _ in range(data.draw(st.integers(1, 4))):
        spots = places(raw, [])
        if not spots:
            break
        holder, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        odd = copy.deepcopy(data.draw(ODD))
        match data.draw(st.sampled_from(["replace", "delete", "add"])):
            case "replace":
                holder[key] = odd
            case "delete":
                del holder[key]
            case _ if isinstance(holder, dict):
                holder[data.draw(st.text(max_size=4))] = odd
            case _:
                holder.append(odd)
    try:
        found = parse(raw, now=NOW)
    except UnreadableSnapshot:
        assert not isinstance(raw.get("rawObjects"), dict)
        return
    check(found)
    assert plain(found) == plain(parse(raw, now=NOW, memo=ParseMemo()))


@settings(max_examples=400)
@given(st.data())
def test_remembered_specs_are_those_that_would_be_read(data: st.DataObject) -> None:
    """The text that stands for a pod's spec differs for all specs that differ."""
    original = rich()["rawObjects"]["pods"][data.draw(st.integers(0, 4))]
    changed = copy.deepcopy(original)
    spots = [spot for part in ("spec", "status") for spot in places(changed[part], [])]
    holder, key = spots[data.draw(st.integers(0, len(spots) - 1))]
    holder[key] = copy.deepcopy(data.draw(ODD))
    specs: dict[bytes, SpecDraft] = {}
    reader = FactReader({}, specs, Limits())
    reader.read(original, "default", "p")
    try:
        facts = reader.read(changed, "default", "p")
    except Malformed:
        return
    fresh = FactReader({}, {}, Limits()).read(changed, "default", "p").draft
    kept = facts.draft
    assert (kept.spec, kept.amounts, kept.containers) == (fresh.spec, fresh.amounts, fresh.containers)


JSON = st.recursive(
    ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=20
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["pods", "nodes", "queues", "podGroups", "bindRequests"]), JSON), JSON)
def test_any_json_never_raises(lists: Raw, config: Any) -> None:
    check(parse({"rawObjects": lists, "config": config, "schedulerParams": config}, now=NOW))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(UnreadableSnapshot) as caught:
        load(data)
    assert "\n" not in str(caught.value)


@settings(max_examples=60)
@given(st.integers(1, 2000), st.integers(0, 255))
def test_a_damaged_file_never_raises_anything_else(position: int, value: int) -> None:
    text = bytearray(orjson.dumps(rich()))
    text[position % len(text)] = value
    with contextlib.suppress(UnreadableSnapshot):
        check(parse(load(bytes(text)).raw, now=NOW))


@given(st.integers(0, 2**32))
def test_the_order_of_lists_does_not_matter(seed: int) -> None:
    raw = rich()
    expected = plain(parse(raw, now=NOW))
    shuffled = copy.deepcopy(raw)
    for values in shuffled["rawObjects"].values():
        random.Random(seed).shuffle(values)
    assert plain(parse(shuffled, now=NOW)) == expected


def test_a_memo_changes_nothing_and_notices_changes() -> None:
    raw = rich()
    for objects in raw["rawObjects"].values():
        for obj in objects:
            obj.setdefault("metadata", {})["resourceVersion"] = "1"
    memo = ParseMemo()
    first = parse(raw, now=NOW, memo=memo)
    second = parse(raw, now=NOW, memo=memo)
    assert plain(second) == plain(first) == plain(parse(raw, now=NOW))
    assert second.groups[0] is first.groups[0]
    changed = copy.deepcopy(raw)
    changed["rawObjects"]["pods"][0]["metadata"]["resourceVersion"] = "2"
    changed["rawObjects"]["pods"][0]["metadata"]["annotations"]["gpu-fraction"] = "abc"
    changed["rawObjects"]["priorityClasses"][0]["value"] = 75
    changed["rawObjects"]["namespaces"][0]["metadata"]["labels"] = {"zone": "a"}
    third = parse(changed, now=NOW, memo=memo)
    assert plain(third) == plain(parse(changed, now=NOW))
    assert third.groups[0].priority == 75
    assert [row.item for row in third.set_aside] == ["Pod default/whole"]
    assert plain(parse(raw, now=NOW, memo=memo)) == plain(first)


def test_a_memo_hands_out_the_same_pods_and_nodes() -> None:
    """Objects that did not change are the same records, so that a comparison need not look inside."""
    cluster = Changing(3)
    memo = ParseMemo()
    first = parse(cluster.raw, now=NOW, memo=memo)
    leaves = cluster.raw["rawObjects"]["pods"][0]["metadata"]
    cluster.put("pods", cluster.raw["rawObjects"]["pods"][1:])
    second = parse(cluster.raw, now=NOW + 1, memo=memo)
    kept = {pod.key: pod for pod in first.pods if pod.key != (leaves["namespace"], leaves["name"])}
    assert kept
    assert {pod.key for pod in second.pods} == kept.keys()
    assert all(pod is kept[pod.key] for pod in second.pods)
    assert all(one is other for one, other in zip(first.nodes, second.nodes, strict=True))
