"""The reader of annotations: any text gives a value or ``Unreadable``, never another error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.records.annotations import Fields, NoteDocument, Unreadable
from kai_cp_models.snapshot import SetAside

ODD = st.sampled_from(
    [10**400, -(10**400), math.inf, math.nan, True, "", "\ud800", "2026-11-20T12:00:00Z", []]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "b")), inner),
    max_leaves=6,
)
READS: list[Callable[[NoteDocument], Any]] = [
    lambda found: found.instant("a"),
    lambda found: found.number("a", "is odd"),
    lambda found: found.bound("a"),
    lambda found: found.values("a"),
    lambda found: found.text("a"),
    lambda found: found.only("a", "b"),
    lambda found: found.inner("a").inner("b").number("a", "is odd"),
]


@given(VALUES)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for read in READS:
        with suppress(Unreadable):
            read(NoteDocument.of(json.dumps({"a": value}), "things"))


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a":' * 100_000, "nul", "[1]", "1e999", "9" * 5000]
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"is not JSON|is not an object of things"):
        NoteDocument.of(text, "things")


def test_an_entry_costs_itself_and_names_its_field() -> None:
    aside: list[SetAside] = []
    text = json.dumps({"x": {"a": 1}, "y": {"a": "1"}, "z": 3})
    said = Fields("Queue q", (("note", text),), aside)
    found = said.entries("note", "things", "is no thing", lambda entry: entry.number("a", "is no number"))
    assert found == {"x": 1.0}
    assert [(one.field, one.reason.removeprefix(one.field)) for one in aside] == [
        ("metadata.annotations[note].y.a", ': "1" is no number; treated as absent'),
        ("metadata.annotations[note].z", ": 3 is no thing; treated as absent"),
    ]
