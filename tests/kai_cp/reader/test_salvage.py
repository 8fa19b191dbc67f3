"""One bad object among good ones is named, and the others are read."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
import pytest

from kai_cp.reader import container, notes, parse, salvage
from kai_cp.reader.container import UnreadableSnapshot, load

NOW = 1_790_000_000.0


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def item(name: str, inside: bytes = b"1") -> bytes:
    """An object with a free-form field, in the order in which the API server writes."""
    head = {"name": name, "namespace": "ns", "uid": "u-" + name, "resourceVersion": "7", "labels": {"{": "]"}}
    return b'{"kind":"X","metadata":' + orjson.dumps(head) + b',"spec":{"free":' + inside + b"}}"


BAD = {
    "deep": (nested(2000), salvage.TOO_DEEP),
    "too deep to hand on": (nested(700), salvage.TOO_DEEP),
    "half a character": (b'"\\ud800"', "it is not JSON: no low surrogate in string"),
    "endless number": (b"1e999", "it is not JSON: number is infinity when parsed as double"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_bad_object_of_a_list(case: str) -> None:
    inside, reason = BAD[case]
    text = b'{"metadata":{"resourceVersion":"9"},"items":[%s,%s,%s]}' % (
        item("a"),
        item("b", inside),
        item("c", nested(2000)),
    )
    first, bad, _ = salvage.loads(text, 2)["items"]
    assert first == orjson.loads(item("a"))
    assert bad == {
        "setAside": reason,
        "metadata": {"name": "b", "namespace": "ns", "uid": "u-b", "resourceVersion": "7"},
    }


def test_a_text_that_is_no_object_is_refused() -> None:
    for text in (b"", b"{", b'{"items":[1', b'{"a":"' + b"x" * 100_000, b"]" * 10):
        with pytest.raises(orjson.JSONDecodeError):
            salvage.loads(text, 2)


def test_a_bad_object_without_a_name() -> None:
    assert salvage.loads(b'{"items":[{"metadata":{"name":1e999}}]}', 2)["items"] == [
        {"setAside": "it is not JSON: number is infinity when parsed as double"}
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_with_a_bad_object(pack: Any) -> None:
    text = b'{"rawObjects":{"resourceClaims":[%s,%s]}}' % (item("good"), item("bad", nested(3000)))
    snapshot = parse(load(pack(text)).raw, now=NOW)
    assert [(entry.item, entry.reason) for entry in snapshot.set_aside if "bad" in entry.item] == [
        ("ResourceClaim ns/bad", salvage.TOO_DEEP)
    ]


def test_a_file_that_ends_in_the_middle_is_refused() -> None:
    with pytest.raises(UnreadableSnapshot, match="ends in the middle"):
        load(b'{"rawObjects":{"pods":[' + item("a"))


def test_a_small_file_that_would_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_SMALL", 1000)
    text = b'{"rawObjects":{"pods":[' + b"{}," * 5000 + b"{}]}}"
    with pytest.raises(UnreadableSnapshot, match="holds 10004 values, which take some 15306"):
        load(gzip.compress(text), memory_bytes=1_000_000)
    assert load(gzip.compress(text), memory_bytes=2_000_000).raw["rawObjects"]


def test_notes_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MOST", 10)
    raw = {
        "rawObjects": {"pods": [{"metadata": {"name": "x" * 2000}, "spec": 1, f"k{i}": 1} for i in range(50)]}
    }
    raw["rawObjects"]["nodes"] = [7] * 30
    found = parse(raw, now=NOW)
    assert len(found.set_aside) < 15
    assert any("further objects are skipped" in entry.reason for entry in found.set_aside)
    assert all(len(entry.reason) <= 500 for entry in found.set_aside)
