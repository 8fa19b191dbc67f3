"""Documents are what their published types say: every key known, none missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kai_cp.documents import NAMES, problems, schema

DEMO = Path(__file__).parents[2] / "examples" / "demo-cluster.json"


@pytest.mark.parametrize("name", NAMES)
def test_every_document_has_a_schema(name: str) -> None:
    found = schema(name)
    assert found["$id"] == f"kai-cp:{name}"
    assert json.dumps(found)
    assert '"additionalProperties": false' not in json.dumps(found) or name.startswith("bench"), (
        "keys may be added"
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("solve",), "decisions/1"),
        (("solve", "--queue", "research"), "decisions/1"),
        (("inspect",), "inspection/1"),
        (("pending",), "pending/1"),
        (("queues",), "queues/1"),
        (("evictions",), "evictions/1"),
        (("explain", "--all"), "explanation/1"),
    ],
)
def test_what_a_command_writes_is_as_published(command: tuple[str, ...], name: str) -> None:
    words = [sys.executable, "-m", "kai_cp", command[0], str(DEMO), *command[1:], "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert problems(name, json.loads(done.stdout)) == []


def test_a_key_that_is_missing_or_unknown_is_named() -> None:
    assert problems("pending/1", {"schema": "pending/1", "now": "x", "pending": [], "more": 1}) == [
        "more: Extra inputs are not permitted"
    ]
    assert problems("queues/1", {"schema": "queues/1", "now": "x"}) == ["queues: Field required"]
