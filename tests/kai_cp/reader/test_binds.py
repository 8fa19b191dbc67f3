"""BindRequests that promise devices for extended resources."""

from __future__ import annotations

from kai_cp.reader import parse
from kai_cp_models.pods import EXTENDED_RESOURCES
from tests.kai_cp.reader.raw import NOW, group, node, pod, queue, snapshot


def test_the_promised_allocation_is_kept() -> None:
    allocation = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "0"}]}}
    request = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "podName": "p",
            "selectedNode": "n1",
            "extendedResourceClaimAllocation": {"allocation": allocation, "deviceRequests": []},
        },
    }
    raw = snapshot(
        nodes=[node()], pods=[pod("p")], podGroups=[group()], queues=[queue("q")], bindRequests=[request]
    )
    (found,) = parse(raw, now=NOW).pods
    assert found.claim_allocations[EXTENDED_RESOURCES].written == allocation
