"""Log lines as JSON and as text."""

from __future__ import annotations

import json
import logging

import pytest

from kai_cp.kube.serving.logs import JsonFormatter, TextFormatter


def test_logs_as_json_and_as_text(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("x").warning("it %s", "is", extra={"pod": "ns/p"})
    line = json.loads(JsonFormatter().format(caplog.records[-1]))
    assert (line["message"], line["level"], line["pod"]) == ("it is", "warning", "ns/p")
    logging.getLogger("x").warning("cycle", extra={"binds": 2, "why": "no room", "seconds": {"solve": 0.1}})
    text = TextFormatter().format(caplog.records[-1])
    assert text.endswith('WARNING cycle binds=2 why="no room" seconds={"solve":0.1}')
