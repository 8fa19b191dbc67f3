"""Rules of one pod and one node, and amounts, against brute force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.support.brute import Places, agrees, gives_way, worlds
from tests.support.objects import Object
from tests.support.tiny import node, pod, world

EFFECTS = ("", "", "", "NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True)
class Host:
    """``zone`` and ``size`` are labels; "" and 0 mean that there is none."""

    zone: str
    size: int
    effect: str
    ready: bool

    def made(self, name: str) -> Object:
        labels = ({"zone": self.zone} if self.zone else {}) | ({"size": str(self.size)} if self.size else {})
        taints = [{"key": "t", "value": "v", "effect": self.effect}] if self.effect else []
        conditions = [] if self.ready else [{"type": "PIDPressure", "status": "True"}]
        return node(name, labels=labels, taints=taints, conditions=conditions)


@dataclass(frozen=True)
class Guest:
    """``wanted``: a requirement on zone or size; ``tolerates``: (operator, value, effect), None for none."""

    zone: str
    wanted: tuple[str, str, tuple[str, ...]] | None
    tolerates: tuple[str, str, str] | None

    def made(self, name: str) -> Object:
        spec: Object = {"nodeSelector": {"zone": self.zone} if self.zone else {}}
        if self.wanted:
            key, operator, values = self.wanted
            term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": required}
        if self.tolerates:
            operator, value, effect = self.tolerates
            spec["tolerations"] = [{"key": "t", "operator": operator, "value": value, "effect": effect}]
        return pod(name, **spec)

    def accepts(self, host: Host) -> bool:
        """The rules of node selector, node affinity, taints and conditions."""
        if not host.ready or (self.zone and self.zone != host.zone):
            return False
        if self.wanted:
            key, operator, values = self.wanted
            has = host.zone if key == "zone" else str(host.size or "")
            holds = {
                "In": has in values and has != "",
                "NotIn": has not in values,
                "Exists": has != "",
                "DoesNotExist": has == "",
                "Gt": has.isdigit() and bool(values) and int(has) > int(values[0]),
                "Lt": has.isdigit() and bool(values) and int(has) < int(values[0]),
            }
            if not holds[operator]:
                return False
        if host.effect in ("", "PreferNoSchedule"):
            return True
        if not self.tolerates:
            return False
        operator, value, effect = self.tolerates
        return effect in ("", host.effect) and (operator == "Exists" or value == "v")


HOSTS = st.builds(Host, st.sampled_from(("", "a", "b")), st.sampled_from((0, 4, 8)), st.sampled_from(EFFECTS),
                  st.sampled_from((True, True, True, False)))  # fmt: skip
WANTED = st.sampled_from(
    (
        None,
        *(("zone", operator, values) for operator in ("In", "NotIn") for values in (("a",), ("a", "b"))),
        *((key, operator, ()) for key in ("zone", "size") for operator in ("Exists", "DoesNotExist")),
        *(("size", operator, (bound,)) for operator in ("Gt", "Lt") for bound in ("4", "8")),
    )
)
TOLERATES = st.one_of(
    st.none(),
    st.just(("Exists", "", "")),
    st.tuples(
        st.just("Equal"), st.sampled_from(("v", "w")), st.sampled_from(("", "NoSchedule", "NoExecute"))
    ),
)
GUESTS = st.builds(Guest, st.sampled_from(("", "", "", "a")), WANTED, TOLERATES)


@worlds(250)
@given(st.lists(HOSTS, min_size=1, max_size=3), st.lists(GUESTS, min_size=1, max_size=3))
def test_selectors_affinity_taints_and_conditions(hosts: list[Host], guests: list[Guest]) -> None:
    nodes = {f"n{i}": host for i, host in enumerate(hosts)}
    pods = {f"x{i}": guest for i, guest in enumerate(guests)}
    found = world(
        [host.made(name) for name, host in nodes.items()], [g.made(name) for name, g in pods.items()]
    )

    def legal(places: Places) -> bool:
        return all(pods[name].accepts(nodes[at]) for name, at in places.items())

    agrees(found, list(pods), {}, legal)


# --- amounts ---------------------------------------------------------------------------------------

RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga")
UNITS = {"memory": "Gi", "ephemeral-storage": "Gi", "hugepages-2Mi": "Mi"}


def amounts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{value}{UNITS.get(name, '')}" for name, value in values.items()}


OFFERS = st.fixed_dictionaries(
    {"cpu": st.integers(2, 5), "memory": st.integers(2, 5), "pods": st.integers(1, 3)},
    optional={name: st.integers(2, 4) for name in RESOURCES[2:]},
)
NEEDS = st.fixed_dictionaries(
    {"cpu": st.integers(1, 3)}, optional={name: st.integers(1, 3) for name in RESOURCES[1:]}
)
ASKS = st.tuples(NEEDS, st.integers(0, 2), st.integers(0, 4))
"""Requests, CPUs of the runtime's overhead, CPUs of an init container."""


def holds(
    nodes: Mapping[str, Mapping[str, int]], totals: Mapping[str, Mapping[str, int]], places: Places
) -> bool:
    """Pods on a node ask for no more of anything than the node offers."""
    return all(
        sum(totals[name].get(resource, 0) for name in here) <= offer.get(resource, 0)
        for at, offer in nodes.items()
        if (here := [name for name in places if places[name] == at])
        for resource in (*RESOURCES, "pods")
    )


@worlds(80)
@given(
    st.lists(OFFERS, min_size=1, max_size=3),
    st.lists(st.tuples(ASKS, st.booleans()), min_size=1, max_size=4),
)
def test_amounts(
    offers: list[dict[str, int]], asks: list[tuple[tuple[dict[str, int], int, int], bool]]
) -> None:
    """Running pods are placed wherever they fit; the others wait."""
    nodes = {f"n{i}": offer for i, offer in enumerate(offers)}
    totals: dict[str, dict[str, int]] = {}
    running: dict[str, str] = {}

    def legal(places: Places) -> bool:
        return holds(nodes, totals, places)

    made = []
    for i, ((needs, overhead, first), runs) in enumerate(asks):
        name = f"x{i}"
        totals[name] = needs | {"cpu": max(needs["cpu"], first) + overhead, "pods": 1}
        on = next((at for at in nodes if runs and legal({**running, name: at})), "")
        if on:
            running[name] = on
        init = [{"name": "i", "resources": {"requests": {"cpu": str(first)}}}] if first else []
        spec: Object = {"overhead": {"cpu": str(overhead)}, "initContainers": init}
        made.append(pod(name, on, requests=amounts(needs), **spec))
    found = world([node(name, amounts(offer)) for name, offer in nodes.items()], made)
    agrees(found, [name for name in totals if name not in running], running, legal)


@worlds(60)
@given(
    st.lists(OFFERS, min_size=1, max_size=2),
    st.lists(NEEDS, min_size=1, max_size=4),
    NEEDS,
)
def test_amounts_of_pods_that_leave(
    offers: list[dict[str, int]], standing: list[dict[str, int]], wanted: dict[str, int]
) -> None:
    nodes = {f"n{i}": offer for i, offer in enumerate(offers)}
    totals = {"x": wanted | {"pods": 1}}
    running: dict[str, str] = {}

    def legal(places: Places) -> bool:
        return holds(nodes, totals, places)

    made = []
    for i, needs in enumerate(standing):
        totals[f"v{i}"] = needs | {"pods": 1}
        on = next((at for at in nodes if legal({**running, f"v{i}": at})), "")
        if on:
            running[f"v{i}"] = on
            made.append(pod(f"v{i}", on, requests=amounts(needs), priority="low"))
    found = world(
        [node(name, amounts(offer)) for name, offer in nodes.items()],
        [*made, pod("x", requests=amounts(wanted))],
        actions="allocate, preempt",
    )
    gives_way(found, "x", running, legal)
