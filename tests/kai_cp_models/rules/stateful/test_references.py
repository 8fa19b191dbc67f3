"""ConfigMaps and volume claims that must exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kai_cp_models.pods import PodSpec
from kai_cp_models.rules.stateful import references
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec


def pvc(name: str, namespace: str = "ns", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, **meta}}


@pytest.mark.parametrize(
    ("wants", "reason"),
    [
        (spec(volume_claims=("data",)), ""),
        (spec(volume_claims=("data", "missing-data")), 'persistentvolumeclaim "missing-data" not found'),
        (spec(volume_claims=("elsewhere",)), 'persistentvolumeclaim "elsewhere" not found'),
        (spec(volume_claims=("going",)), "is being deleted"),
        (spec(config_maps=("here",)), ""),
        (spec(config_maps=("here", "gone")), "ConfigMap gone does not exist in namespace ns"),
    ],
)
def test_missing_objects_are_dead_ends(wants: PodSpec, reason: str) -> None:
    x = pod("x", wants=wants)
    claims = [pvc("data"), pvc("elsewhere", "other"), pvc("going", deletionTimestamp="2026-11-20T12:00:00Z")]
    found = replace(
        snapshot([x], raw={"persistentVolumeClaims": claims}), config_maps=frozenset({("ns", "here")})
    )
    state = references.open(found)
    assert reason in state.dead_end(x)
    assert bool(state.dead_end(x)) is bool(reason)
    mask = state.mask(x, now=True)
    assert (mask is None) is not bool(reason)
