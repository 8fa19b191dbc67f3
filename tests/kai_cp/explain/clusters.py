"""Small clusters in which a pod group ``default/x`` waits, as raw snapshots."""

from __future__ import annotations

from functools import partial

from tests.support import objects as raw
from tests.support import tiny
from tests.support.tiny import node, pod

NOW = raw.NOW.timestamp()

cluster = partial(
    tiny.cluster, actions="allocate, reclaim, preempt", params={"allowConsolidatingReclaim": False}
)
"""A raw snapshot; every pod is a pod group of its own unless it names one, older ones first."""


def racks() -> raw.Object:
    """x needs two GPUs in one rack, and every rack has one."""
    return cluster(
        [node(f"n{i}", gpus=1, labels={"zone": "z", "rack": f"r{i}"}) for i in range(2)],
        [pod("x-0", gpus=1, group="x"), pod("x-1", gpus=1, group="x")],
        groups={
            "x": {"minMember": 2, "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"}}
        },
        topologies=[
            {
                "metadata": {"name": "dc", "uid": "dc"},
                "spec": {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]},
            }
        ],
    )
