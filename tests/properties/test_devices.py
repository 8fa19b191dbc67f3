"""The engine with stateful rules on tiny clusters: it admits exactly what brute force admits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_cp_models.check import violations
from kai_cp_models.engine import decide
from kai_cp_models.pods import ClaimRef, Pod
from kai_cp_models.rules.stateful import enriched
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Node, Snapshot
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec, term
from tests.kai_cp_models.rules.stateful.test_dra import (
    DRIVER,
    attributes,
    claim,
    device,
    exact,
    klass,
    slice_of,
)
from tests.support.worlds import group, queue

ZONES = ("a", "a", "b")
KINDS = "fst"


@dataclass(frozen=True)
class Ask:
    """The needs of one pod: a host port, being alone in its zone, devices of a kind ("" = any, "ft" =
    either). ``alike``: all its devices are of one kind, whichever kind it is.
    """

    port: bool
    alone: bool
    kind: str
    count: int
    alike: bool = False


def cluster(asks: list[Ask], devices: list[str], nodes: int) -> Snapshot:
    pods = []
    claims: list[dict[str, Any]] = []
    for i, ask in enumerate(asks):
        wants = spec(
            (1000, 0, 0, 1),
            host_ports=(("", "TCP", 80),) if ask.port else (),
            pod_anti_affinity=(term("zone", app="alone"),) if ask.alone else (),
            claims=(ClaimRef("c", f"c{i}"),) if ask.count else (),
        )
        pods.append(
            replace(
                pod(f"p{i}", wants=wants, labels={"app": "alone" if ask.alone else "x"}), created=float(i)
            )
        )
        selectors = (
            [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind in {list(ask.kind)}'}}]
            if ask.kind
            else []
        )
        if ask.count:
            constraints = [{"requests": [], "matchAttribute": f"{DRIVER}/kind"}] if ask.alike else []
            wanted = exact(ask.count, device_class="acc", selectors=selectors)
            claims.append(claim(f"c{i}", wanted, constraints=constraints))
    made = [Node(f"n{i}", (8000, 2**30, 0, 110), {"zone": ZONES[i]}) for i in range(nodes)]
    slices = [
        slice_of(
            f"n{i}", *(device(f"d{j}", attributes=attributes(kind=kind)) for j, kind in enumerate(kinds))
        )
        for i, kinds in enumerate(devices[:nodes])
        if kinds
    ]
    raw = {"resourceClaims": claims, "resourceSlices": slices, "deviceClasses": [klass("acc")]}
    plugins = frozenset({"predicates", "dynamicresources", "proportion"})
    base = snapshot(pods, made, raw=raw, plugins=plugins, actions=("allocate",))
    groups = tuple(group(p.key.name, created=p.created) for p in pods)
    return enriched(replace(base, groups=groups, queues=(queue("q", "top"), queue("top"))))


def possible(asks: list[Ask], devices: list[str], nodes: int) -> bool:
    """Whether all of ``asks`` have places together."""
    return any(all_hold(asks, places, devices) for places in product(range(nodes), repeat=len(asks)))


def all_hold(asks: list[Ask], places: tuple[int, ...], devices: list[str]) -> bool:
    for node in set(places):
        here = [ask for ask, place in zip(asks, places, strict=True) if place == node]
        wanted = [ask.kind or KINDS for ask in here for _ in range(ask.count)]
        served = any(
            all(have in want for want, have in zip(wanted, chosen, strict=True)) and kept_alike(here, chosen)
            for chosen in permutations(devices[node], len(wanted))
        )
        if sum(ask.port for ask in here) > 1 or not served:
            return False
    alone = [ZONES[place] for ask, place in zip(asks, places, strict=True) if ask.alone]
    return len(set(alone)) == len(alone)


def kept_alike(asks: list[Ask], chosen: tuple[str, ...]) -> bool:
    """Whether asks that need devices of one kind get such devices out of ``chosen``, in their order."""
    left = iter(chosen)
    got = [(ask, [next(left) for _ in range(ask.count)]) for ask in asks]
    return all(len(set(kinds)) <= 1 for ask, kinds in got if ask.alike)


ASKS = st.builds(
    Ask,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "f", "fs", "st"]),
    st.integers(0, 2),
    st.sampled_from([False, False, False, True]),
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(ASKS, min_size=1, max_size=4),
    st.lists(st.text(KINDS, max_size=4), min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_allocate_admits_what_brute_force_admits(asks: list[Ask], devices: list[str], nodes: int) -> None:
    """In the fair order, each pod is admitted that has a place together with all pods admitted before it."""
    found = cluster(asks, devices, nodes)
    plan = decide(found, Settings.model_validate({"solver": {"budget_seconds": 20, "patience": 1000}}))
    assert violations(found, plan) == []
    admitted: list[Ask] = []
    expected = []
    for i, ask in enumerate(asks):
        if possible([*admitted, ask], devices, nodes):
            admitted.append(ask)
            expected.append(f"p{i}")
    bound: list[Pod] = [found.pod_by_key[d.pod] for d in plan.decisions if d.kind == "Bind"]
    assert sorted(p.key.name for p in bound) == expected
