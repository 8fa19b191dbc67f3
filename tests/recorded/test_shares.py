"""Fair shares against those that KAI computed in its recorded cases (``SHARED`` as in the Makefile)."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.fairness.share import fair_shares

ROOT = Path(__file__).parents[2]
CASES = ROOT / os.environ.get("SHARED", "../shared") / "conformance" / "cases"
INEXPRESSIBLE = "pipelinedinput"
"""The flag of the one case whose input Kubernetes objects cannot express."""


def cases() -> list[Any]:
    found = sorted(CASES.glob("*/*.json"))
    absent = pytest.param(None, marks=pytest.mark.skip("the recorded cases are not at hand"))
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in found] or [absent]


@pytest.mark.parametrize("path", cases())
def test_fair_shares_are_the_recorded_ones(path: Path) -> None:
    case = json.loads(path.read_bytes())
    if INEXPRESSIBLE in case["flags"]:
        pytest.skip("Kubernetes objects cannot express this input")
    # Only the first session starts from the snapshot itself; three cases recorded no shares.
    recorded = case["observed"]["sessions"][0].get("queuesFairShare") or {}
    snapshot = parse(case["snapshot"], now=datetime.fromisoformat(case["now"]).timestamp())
    found = fair_shares(snapshot)
    for queue, expected in recorded.items():
        cpu, memory, gpus = found[queue]
        # The recorder cut values above one GPU to whole GPUs.
        cut = gpus if gpus <= 1 else float(int(gpus))
        wanted = (expected["cpu"], expected["memory"], expected["gpu"])
        assert (cpu, memory, cut) == pytest.approx(wanted), queue
