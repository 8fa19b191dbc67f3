"""The report of one answer: words of counts, and which queues it shows."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from kai_cp.report.decisions import report


def amounts(cpu: float, gpu: float) -> dict[str, float]:
    return {"cpu": cpu, "memory": -1, "gpu": gpu}


def printed(queues: dict[str, Any]) -> str:
    """One pod of one GPU is evicted for another; queues before and after."""
    one = {"namespace": "ns", "queue": "q", "gpus": 1, "node": "n", "action": "reclaim"}
    document = {
        "now": "2026-11-20T12:00:00Z",
        "cluster": {"nodes": 1, "gpus": 1, "waitingPodGroups": 1},
        "decisions": [
            {**one, "kind": "Evict", "pod": "old", "podGroup": "old", "for": ["ns/new"]},
            {**one, "kind": "Nominate", "pod": "new", "podGroup": "new"},
        ],
        "unscheduled": [],
        "setAside": [],
        "stages": [],
        "timings": {},
        "queues": queues,
    }
    output = io.StringIO()
    Console(file=output, width=80).print(report("s", document), crop=False)
    return output.getvalue()


def test_one_gpu_is_not_called_gpus() -> None:
    text = printed({})
    assert "(1 node, 1 GPU)" in text
    assert "Evicted; 1 GPU of running work is lost" in text
    assert "Start, with 1 GPU\n" in text


def queue(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    return {"fairShare": amounts(2000, 4), "allocatedBefore": before, "allocatedAfter": after}


def test_queues_that_only_use_other_cpus_are_not_called_changed_in_gpus() -> None:
    more = queue(amounts(1000, 1), amounts(1000, 2))
    text = printed({"more": more, "same": queue(amounts(1000, 1), amounts(2000, 1))})
    assert "Queues that change, in GPUs" in text
    assert "same" not in text


def test_queues_of_a_cluster_without_gpus_change_in_cpus() -> None:
    text = printed({"q": queue(amounts(500, 0), amounts(1500, 0))})
    assert "Queues that change, in CPUs" in text
    assert ["q", "2", "0.5", "1.5"] in [line.split() for line in text.splitlines()]
