"""Options that are off change nothing: our annotations and users' labels in every object leave the answer as
it is.

Of the code of the time axis only the switches run, and each says no.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kai_cp_models
from kai_cp.decisions import to_json
from kai_cp.reader import parse
from kai_cp.reader.container import load
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.support.times import stored

ROOT = Path(__file__).parents[2]
NOW = 1_795_176_000.0
NOTES = {
    "kai-cp/expected-runtime": "soon",
    "kai-cp/max-runtime": "1s",
    "kai-cp/reserve": "yes",
    "kai-cp/hero-price-gpu-hours": "1000",
    "kai-cp/ended": "now",
    "kai-cp/gpu-kinds": '{"unknown": {"limit": 0, "quota": 0}, "H100": 3}',
    "kai-cp/users": '{"*": {"gpuLimit": 0}}',
    "kai-cp/rollout": "100000h",
}


def snapshots() -> Iterator[Path]:
    """The sample, and the smallest recorded clusters if they exist."""
    yield ROOT / "examples" / "demo-cluster.json"
    folder = ROOT.parent / "shared" / "bench" / "snapshots"
    found = [path for path in folder.glob("*") if path.is_file() and "options" not in path.name]
    yield from sorted(found, key=lambda path: (path.stat().st_size, path.name))[:3]


def document(raw: Any) -> Any:
    """The answer without what differs from run to run."""
    snapshot = parse(raw, now=NOW)
    chosen = Settings.model_validate({"solver": {"budget_seconds": 60, "workers": 1}})
    found = to_json(snapshot, decide(snapshot, chosen))
    found["timings"] = {}
    found["stages"] = [{**stage, "seconds": 0} for stage in found["stages"]]
    return found


@pytest.mark.parametrize("path", list(snapshots()), ids=lambda path: path.name)
def test_annotations_change_nothing(path: Path) -> None:
    raw = load(str(path), max_bytes=2**31).raw
    marked = copy.deepcopy(dict(raw))
    for kind in ("podGroups", "queues"):
        for item in marked["rawObjects"].get(kind) or ():
            notes = item["metadata"].setdefault("annotations", {}) or {}
            notes |= {**NOTES, "kai-cp/reservation": stored(30, {"n1": 8}), "kai-cp/defrag": "false"}
            item["metadata"]["annotations"] = notes
            item["metadata"]["labels"] = {
                **(item["metadata"].get("labels") or {}),
                "user": item["metadata"]["name"],
            }
    for i, item in enumerate(marked["rawObjects"]["pods"]):
        revision = f"r{i % 2}"
        meta = item["metadata"]
        meta["labels"] = {**(meta.get("labels") or {}), "pod-template-hash": revision}
        owner = {"kind": "ReplicaSet", "name": f"web-{revision}", "controller": True}
        meta["ownerReferences"] = [*(meta.get("ownerReferences") or ()), owner]
    plain, with_notes = document(raw), document(marked)
    assert "reservations" not in with_notes
    assert json.dumps(with_notes, sort_keys=True) == json.dumps(plain, sort_keys=True)


MODELS = Path(kai_cp_models.__file__).parent
SWITCHES = {
    "prepare": "the snapshot goes on as it is",
    "active": "the rule of held capacity is no rule of the ledger",
    "settle": "nothing is planned anew after an action",
    "reservations": "the plan has no reservations",
    "estimated": "what waits is told of as it is",
    "next_instant": "no cycle is due at a start",
    "broken": "the checker has no starts to look at",
}
"""Functions of the time axis that run while it is off."""


@pytest.mark.parametrize("path", list(snapshots()), ids=lambda path: path.name)
def test_every_switch_of_the_time_axis_says_no(path: Path) -> None:
    """So the answer is that of an engine without the time axis."""
    snapshot = parse(load(str(path), max_bytes=2**31).raw, now=NOW)
    places = (str(MODELS / "reservations"), str(MODELS / "check" / "starts.py"))
    answers: dict[str, list[object]] = {}

    def note(frame: FrameType, event: str, answer: object) -> None:
        if event == "return" and frame.f_code.co_filename.startswith(places):
            name = frame.f_code.co_name
            given = {"prepare": "snapshot", "estimated": "entries"}.get(name)
            changed = answer if given is None else answer not in (frame.f_locals[given], (snapshot, None))
            answers.setdefault(name, []).append(changed)

    sys.setprofile(note)
    try:
        decide(snapshot, Settings.model_validate({"solver": {"budget_seconds": 60, "workers": 1}}))
    finally:
        sys.setprofile(None)
    assert answers.keys() <= SWITCHES.keys()
    assert answers["prepare"] == [False]
    assert {name for name, found in answers.items() if any(found)} == set()
