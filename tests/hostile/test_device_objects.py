"""No device object, however odd, raises: it is set aside, and the others are used."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.pods import BASE_DIMENSIONS, ClaimRef, Pod
from kai_cp_models.rules.stateful import enriched, open_rules
from kai_cp_models.settings import OptionalRules
from tests.kai_cp_models.rules.stateful.build import PLUGINS, pod, snapshot, spec
from tests.kai_cp_models.rules.stateful.test_dra import (
    attributes,
    claim,
    device,
    exact,
    held,
    klass,
    slice_of,
)
from tests.kai_cp_models.rules.stateful.test_numa import FOUR, nrt
from tests.kai_cp_models.rules.stateful.test_storage import CLASSES, TRACKED, capacity, pv, pvc, selector
from tests.rules.test_spread_and_budgets import budget

ON = OptionalRules(topology_spread=True, pod_disruption_budgets=True)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(["", "abc", "-1", "1e9", "1e999999999", "0.5", "n0", "gpu", "ns", "All"]),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([[]]),
    st.just([{}]),
    st.just({"": None}),
    st.just({"a": 1}),
)


def rich() -> dict[str, Any]:
    policy = {
        "default": "1Gi",
        "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"},
        "validValues": ["1Gi"],
    }
    draws = [{"counterSet": "s", "counters": {"mem": {"value": "1"}}}]
    devices = [
        device(
            "a",
            attributes=attributes(kind="x", n=1, on=True) | {"v": {"version": "1.0.0"}},
            consumesCounters=draws,
        ),
        device(
            "b", allowMultipleAllocations=True, capacity={"mem": {"value": "4Gi", "requestPolicy": policy}}
        ),
        device("c", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
    ]
    counters = [{"name": "s", "counters": {"mem": {"value": "2"}}}]
    tolerations = [{"key": "k", "operator": "Exists"}]
    cel = [{"cel": {"expression": 'device.attributes["gpu.example.com"].kind == "x"'}}]
    first = {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "selectors": cel}]}
    limits = {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 1}}]}
    return {
        "resourceSlices": [slice_of("n0", *devices, sharedCounters=counters),
                           slice_of("far", device("a"), nodeSelector=selector("host", "n1"))],
        "deviceClasses": [klass("gpu", "device.driver != ''", extendedResourceName="example.com/acc")],
        "resourceClaims": [
            claim("c", exact(tolerations=tolerations, capacity={"requests": {"mem": "1Gi"}}), first,
                  constraints=[{"requests": ["r"], "matchAttribute": "gpu.example.com/n"}]),
            claim("d", exact(), allocation=held("n0", "a"), reservedFor=[{"uid": "uid-runs"}]),
        ],
        "nodeResourceTopologies": [nrt("n0", *FOUR)],
        "persistentVolumes": [pv("v", claim="vc", nodes=selector("host", "n0"))],
        "persistentVolumeClaims": [pvc("vc", "v"), pvc("wait", klass="net", owner="x", node="n0")],
        "storageClasses": copy.deepcopy(CLASSES),
        "csiDrivers": copy.deepcopy(TRACKED),
        "csiStorageCapacities": [capacity("a", "5Gi", "a")],
        "csiNodes": [{"metadata": {"name": "n0"}, "spec": limits}],
        "podDisruptionBudgets": [budget("b", maxUnavailable=1)],
    }  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield value, key
        yield from places(child)


COUNT = sum(1 for _ in places(rich()))


def users() -> list[Pod]:
    runs = spec((1000, 0, 0, 1, 0), claims=(ClaimRef("c0", "d"),), volume_claims=("vc",))
    wants = spec(
        (1000, 0, 0, 1, 1000), claims=(ClaimRef("c0", "c"),), volume_claims=("wait",), guaranteed=True
    )
    return [
        pod("runs", "n0", wants=runs, labels={"app": "x"}),
        pod("x", wants=wants, labels={"app": "x"}),
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, COUNT - 1), ODD), max_size=2))
def test_changed_values_never_raise(changes: list[tuple[int, Any]]) -> None:
    raw = rich()
    for position, value in changes:
        found = list(places(raw))
        container, key = found[position % len(found)]
        container[key] = copy.deepcopy(value)
    raw = {
        name: [item for item in value if isinstance(item, dict)]
        for name, value in raw.items()
        if isinstance(value, list)
    }
    base = snapshot(
        users(),
        raw=raw,
        plugins=PLUGINS | {"numa"},
        dimensions=(*BASE_DIMENSIONS, "example.com/acc"),
        schedule_csi_storage=True,
    )
    found_nodes = tuple(replace(node, allocatable=(*node.allocatable, 0)) for node in base.nodes)
    world = enriched(replace(base, nodes=found_nodes))
    runs, x = world.pods
    for state in open_rules(world, ON):
        state.identity(x)
        state.score(x)
        list(state.rows([x], [2], [0, 1, 2]))
        state.evict(runs)
        for now in (True, False):
            mask = state.mask(x, now=now)
            nodes = range(3) if mask is None else mask.nonzero()[0].tolist()
            for node in nodes:
                trial = state.copy()
                trial.place(x, node, pipelined=not now)
                trial.remove(x, node)
        state.unevict(runs)
        assert isinstance(state.refusals(x) + state.dead_end(x), str)
