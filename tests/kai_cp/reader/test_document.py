"""Lists are parsed item by item: the records and the findings are those of a document parsed as one value."""

from __future__ import annotations

import copy
import random
import weakref
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp.json_types import Json
from kai_cp.reader import parse, salvage
from kai_cp.reader.container import UnreadableSnapshot, load, load_items
from kai_cp.reader.document import BadJson, Items, page, read, whole
from kai_cp.reader.facts import FactReader, PodFacts
from kai_cp_models.snapshot import Snapshot
from tests.hostile.test_reader import ODD, places, plain
from tests.kai_cp.reader.raw import NOW, node, pod, snapshot
from tests.kai_cp.reader.rich import rich

BAD_TOKENS = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"123456789012345678901234567890",
    b"01",
    b'"\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\n"',
    b'{"a":1,"a":2}',
    b"[1,]",
    b"[" * 2000 + b"]" * 2000,
    b"nul",
)


def refused_for(item: memoryview) -> str:
    return "it is too large" if item.nbytes > 100 else ""


def nothing(item: memoryview) -> str:
    return ""


def as_one_value(text: bytes) -> Snapshot | None:
    """The snapshot, the document parsed at once; None if that is no snapshot."""
    try:
        raw = salvage.loads(text, 3)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("rawObjects"), dict):
        return None
    return plain(parse(raw, now=NOW))


def item_by_item(text: bytes) -> Snapshot | None:
    try:
        raw = load_items(text).raw
    except UnreadableSnapshot:
        return None
    return plain(parse(raw, now=NOW, use_up=True))


def reasons(found: Snapshot) -> set[tuple[str, str]]:
    return {(entry.item, entry.reason) for entry in found.set_aside}


@settings(max_examples=100)
@given(st.data())
def test_changed_values_are_read_as_in_one_value(data: st.DataObject) -> None:
    raw = rich()
    for _ in range(data.draw(st.integers(1, 4))):
        spots = places(raw, [])
        if not spots:
            break
        holder, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        if data.draw(st.booleans()) and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))  # Two objects have one name.
        else:
            holder[key] = copy.deepcopy(data.draw(ODD))
    try:
        text = orjson.dumps(raw)
    except TypeError:  # An integer beyond 64 bits, which the next test writes as text.
        return
    assert item_by_item(text) == as_one_value(text)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(0, len(BAD_TOKENS) - 1))
def test_bad_values_are_read_as_in_one_value(seed: int, token: int) -> None:
    """A bad value below an item sets the item aside; one beside items is no reason to read something else."""
    drawn = random.Random(seed)
    raw = rich()
    holder, key = drawn.choice(places(raw, []))
    holder[key] = "@@"
    text = orjson.dumps(raw).replace(b'"@@"', BAD_TOKENS[token])
    found, expected = item_by_item(text), as_one_value(text)
    if expected is not None or found is None:
        assert found == expected
    else:
        assert found.set_aside, "what is no JSON in one value is named"


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_a_damaged_document_is_read_as_in_one_value(seed: int) -> None:
    drawn = random.Random(seed)
    text = bytearray(orjson.dumps(rich(), option=drawn.choice((0, orjson.OPT_INDENT_2))))
    text[drawn.randrange(len(text))] = drawn.randrange(256)
    expected = as_one_value(bytes(text))
    found = item_by_item(bytes(text))
    if expected is not None:
        assert found == expected


def test_items_are_parsed_whenever_they_are_asked_for() -> None:
    raw = read(b' {"a":[1],"rawObjects":{"pods":[{"x":1},[],7],"nodes":null,"odd":{"y":[2]}}} ', nothing)
    assert raw is not None
    pods = raw["rawObjects"]["pods"]
    assert isinstance(pods, Items)
    assert (len(pods), list(pods), pods[0]) == (3, [{"x": 1}, [], 7], {"x": 1})
    assert pods[0] is not pods[0]
    assert whole(raw) == {
        "a": [1],
        "rawObjects": {"pods": [{"x": 1}, [], 7], "nodes": None, "odd": {"y": [2]}},
    }


def test_an_item_that_may_not_be_parsed_is_set_aside() -> None:
    raw = read(b'{"rawObjects":{"pods":["%s",1]}}' % (b"x" * 200), refused_for)
    assert raw is not None
    assert list(raw["rawObjects"]["pods"]) == [{"setAside": "it is too large"}, 1]


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        (b'{"a":', "it ends in the middle", 5),
        (b'{"a":tru}', "invalid character", 6),
        (b'{"a":1} x', "trailing characters", 8),
        (b'{"config":"\xff"}', "config: str is not valid UTF-8", None),
        (b'{"rawObjects":{"\xff":[]}}', "rawObjects: ", None),
        (b'{"a":' * 3000, "it is nested too deep", None),
    ],
)
def test_a_problem_beside_items_is_named(text: bytes, problem: str, at: int | None) -> None:
    with pytest.raises(BadJson, match=problem) as caught:
        read(text, nothing)
    assert caught.value.at == at


def test_a_problem_has_line_and_column() -> None:
    with pytest.raises(UnreadableSnapshot, match=r"invalid character at line 2, column 6\)"):
        load(b'{"a": 1,\n "b":?}')


class WatchedPod(dict[str, Any]):
    """A parsed pod that can be seen to be freed."""


def test_a_pod_is_freed_before_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = orjson.dumps(snapshot(nodes=[node("n1")], pods=[pod(name) for name in ("a", "b", "c")]))
    expected = parse(load(text).raw, now=NOW)
    made: list[weakref.ref[WatchedPod]] = []
    alive: list[int] = []
    parse_item, read_facts = salvage.loads_item, FactReader.read

    def watched(item: memoryview) -> WatchedPod:
        found = WatchedPod(parse_item(item))
        made.append(weakref.ref(found))
        return found

    def counted(self: FactReader, raw_pod: Json, namespace: str, name: str) -> PodFacts:
        alive.append(sum(one() is not None for one in made))
        return read_facts(self, raw_pod, namespace, name)

    monkeypatch.setattr(salvage, "loads_item", watched)
    monkeypatch.setattr(FactReader, "read", counted)
    raw = load_items(text).raw
    assert parse(raw, now=NOW, use_up=True) == expected
    assert alive == [1, 1, 1]
    assert raw["rawObjects"] == {}


@pytest.mark.parametrize("items", [None, [], [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]])
def test_a_page_has_its_items_and_where_it_ends(items: list[Any] | None) -> None:
    text = orjson.dumps({"kind": "List", "metadata": {"continue": "next"}, "items": items})
    found, meta = page(text)
    assert (list(found), meta) == (items or [], {"continue": "next"})


def test_objects_of_a_page_are_parsed_one_by_one() -> None:
    """A large object takes 20 times its text, which a list of a thousand would have at once."""
    found, _ = page(b'{"items": [{"metadata": {"name": "a"}}]}')
    assert isinstance(found, Items)


def test_a_bad_object_of_a_page_costs_itself_alone() -> None:
    deep = b'{"metadata": {"name": "deep"}, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    number = b'{"metadata": {"name": "number"}, "x": 1e999}'
    found, _ = page(b'{"items": [' + b", ".join([deep, number, b'{"metadata": {"name": "good"}}']) + b"]}")
    assert [one["metadata"]["name"] for one in found] == ["deep", "number", "good"]
    assert [salvage.SET_ASIDE in one for one in found] == [True, True, False]
