"""Names that would move a terminal or forge a line are refused, and no log prints them unescaped."""

from __future__ import annotations

import logging

import pytest

from kai_cp.kube.serving.logs import TextFormatter
from kai_cp.reader import parse
from tests.kai_cp.reader.raw import NOW, node, pod, snapshot

EVIL = "\x1b]0;owned\x07\x1b[2Jevil\nforged: line"


@pytest.mark.parametrize("name", [EVIL, "a\nb", "a\u202eb", "\u2028"])
def test_a_name_is_printable(name: str) -> None:
    found = parse(snapshot(nodes=[node(), node(name)], pods=[pod(name), pod("x")]), now=NOW)
    assert [row.name for row in found.nodes] == [node()["metadata"]["name"]]
    assert [row.key.name for row in found.pods] == ["x"]
    assert all(entry.item.isprintable() and entry.reason.isprintable() for entry in found.set_aside)
    assert len(found.set_aside) >= 2


@pytest.mark.parametrize("value", [EVIL, {"pod": EVIL}, [EVIL]])
def test_a_text_log_has_one_line_a_record(value: object) -> None:
    record = logging.makeLogRecord({"msg": f"said {EVIL}", "levelname": "INFO", "object": value})
    assert TextFormatter().format(record).isprintable()
