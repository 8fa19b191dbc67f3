"""Small clusters in which a pod group ``default/x`` waits, as raw snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import objects as raw
from tests.support.tiny import queue

NOW = raw.NOW.timestamp()


def cluster(
    nodes: Sequence[raw.Object],
    pods: Sequence[raw.Object],
    *,
    actions: str = "allocate, reclaim, preempt",
    queues: Sequence[raw.Object] = (),
    groups: Mapping[str, raw.Object] | None = None,
    **lists: Sequence[raw.Object],
) -> raw.Object:
    """A raw snapshot; every pod is a pod group of its own unless it names one, older ones first."""
    owners: dict[str, Any] = {}
    for one in pods:
        owners.setdefault(one["metadata"]["annotations"]["pod-group-name"], one["belongs"])
    made = [
        raw.group("default", name, 1000 - i, {"minMember": 1} | spec | dict((groups or {}).get(name, {})), {})
        for i, (name, spec) in enumerate(owners.items())
    ]
    config = raw.config(actions, spread=False, minruntime={}, proportion={})
    return raw.snapshot(
        config,
        {"maxNumberConsolidationPreemptees": 16},
        {
            "nodes": list(nodes),
            "queues": [queue("top", ""), *(queues or [queue("q")])],
            "podGroups": made,
            "pods": [{key: value for key, value in one.items() if key != "belongs"} for one in pods],
            **{name: list(objects) for name, objects in lists.items()},
        },
    )
