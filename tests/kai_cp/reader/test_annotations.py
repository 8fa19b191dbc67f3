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

from kai_cp.reader.annotations import Fields, NoteDocument, Unreadable, group_notes, queue_notes
from kai_cp_models.records.notes import (
    DEFRAG,
    EXPECTED,
    FAILURES,
    MOVED,
    RESERVATION,
    RESERVE,
    ROLLOUT,
    Closed,
    Expired,
    Failures,
    Stored,
)

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
def test_an_annotation_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"is not JSON|is not an object of things"):
        NoteDocument.of(text, "things")


def test_a_bad_entry_is_left_out_and_named_by_its_field() -> None:
    text = json.dumps({"x": {"a": 1}, "y": {"a": "1"}, "z": 3})
    said = Fields((("note", text),))
    found = said.entries("note", "things", "is no thing", lambda entry: entry.number("a", "is no number"))
    assert found == {"x": 1.0}
    assert [(one.field, one.reason.removeprefix(one.field)) for one in said.unread] == [
        ("metadata.annotations[note].y.a", ': "1" is no number; treated as absent'),
        ("metadata.annotations[note].z", ": 3 is no thing; treated as absent"),
    ]


def stored(**more: Any) -> str:
    """A reservation of 8 GPUs on n1, made at one o'clock for two."""
    document = {
        "schema": "reservation/1",
        "made": "2026-11-20T01:00:00Z",
        "start": "2026-11-20T02:00:00Z",
        "promised": "2026-11-20T02:00:00Z",
        "nodes": {"n1": 8},
    }
    return json.dumps({key: value for key, value in {**document, **more}.items() if value is not None})


IDLE = {"since": "2026-11-20T02:00:00Z", "gpus": 8, "gpuHours": 8}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (stored(), Stored),
        (stored(idle=IDLE), Closed),
        (stored(beside=[["ns", "g"]]), Stored),
        (stored(beside=[["ns"]]), None),
        (stored(beside=["ns/g"]), None),
        (stored(beside=[["ns", 1]]), None),
        (stored(expired="2026-11-20T03:00:00Z"), Expired),
        (stored(idle={**IDLE, "gpus": 9}), None),
        (stored(idle={**IDLE, "since": "2026-11-20T00:59:00Z"}), None),
        (stored(start="2026-11-20T00:59:00Z"), None),
        (stored(nodes={"n1": 0}), None),
        (stored(nodes=None), None),
        (stored(schema="reservation/2"), None),
    ],
)
def test_a_reservation_is_a_record(text: str, kind: type | None) -> None:
    notes = group_notes(((RESERVATION, text),))
    assert isinstance(notes.reservation, kind or type(None))
    assert (notes.reserved, len(notes.unread)) == (True, 0 if kind else 1)


def test_other_annotations_of_a_pod_group() -> None:
    notes = group_notes(((EXPECTED, "90m"), (RESERVE, "yes"), (DEFRAG, "True"), (MOVED, "{")))
    assert (notes.expected, notes.reserve, notes.defrag, notes.moved) == (5400.0, None, True, None)
    assert [one.annotation for one in notes.unread] == [RESERVE]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"uid": "u", "times": 3, "last": "1970-01-01T00:01:00Z"}', Failures("u", 3, 60.0)),
        ('{"uid": "u", "times": 3}', None),
        ('{"uid": "u", "times": -1, "last": "1970-01-01T00:01:00Z"}', None),
        ("[]", None),
        ("", None),
    ],
)
def test_binds_that_failed(text: str, found: Failures | None) -> None:
    assert group_notes(((FAILURES, text),)).failures == found


def test_a_queue_that_lends_for_an_unreadable_time_lends_never() -> None:
    assert [queue_notes(said).rollout for said in ((), ((ROLLOUT, "never"),), ((ROLLOUT, "1h"),))] == [
        None,
        0,
        3600,
    ]
    soon = queue_notes(((ROLLOUT, "soon"),))
    assert soon.rollout == 0
    assert soon.unread[0].reason.endswith("read as never")
