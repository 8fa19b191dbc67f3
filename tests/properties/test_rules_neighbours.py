"""Rules about neighbouring pods: host ports, affinity between pods, topology spread, budgets; brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.support.brute import Places, agrees, gives_way, worlds
from tests.support.objects import Object
from tests.support.tiny import node, pod, world

ZONES = ("a", "a", "b", "")
HOSTS = {f"n{i}": zone for i, zone in enumerate(ZONES)}
"""Three nodes in two zones, and one node in none."""
NODES = [node(name, labels={"zone": zone} if zone else {}) for name, zone in HOSTS.items()]

# --- host ports ------------------------------------------------------------------------------------

PORTS = st.tuples(st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")), st.sampled_from(("TCP", "UDP")),
                  st.sampled_from((80, 81)))  # fmt: skip


def listening(ports: Iterable[tuple[str, str, int]]) -> Object:
    made = [
        {"containerPort": n, "hostPort": n, "protocol": protocol, "hostIP": ip} for ip, protocol, n in ports
    ]
    return {"containers": [{"name": "main", "ports": made, "resources": {"requests": {"cpu": "1"}}}]}


def clash(one: Sequence[tuple[str, str, int]], other: Sequence[tuple[str, str, int]]) -> bool:
    everywhere = ("", "0.0.0.0")
    return any(
        (protocol, number) == (p, n) and (ip == address or ip in everywhere or address in everywhere)
        for ip, protocol, number in one
        for address, p, n in other
    )


@worlds(60)
@given(st.lists(st.lists(PORTS, min_size=1, max_size=2), min_size=1, max_size=4), st.integers(0, 2))
def test_host_ports(ports: list[list[tuple[str, str, int]]], running: int) -> None:
    """On two nodes; the first pods run."""
    held = {f"x{i}": tuple(each) for i, each in enumerate(ports)}
    runs = dict(zip(list(held)[:running], ("n0", "n1"), strict=False))

    def legal(places: Places) -> bool:
        return not any(
            places[one] == places[other] and clash(held[one], held[other])
            for one in places
            for other in places
            if one < other
        )

    made = [pod(name, runs.get(name, ""), **listening(each)) for name, each in held.items()]
    agrees(world(NODES[:2], made), [name for name in held if name not in runs], runs, legal)
    made = [
        pod(name, "n0", priority="low", **listening(each))
        for name, each in held.items()
        if name != "x0" and not any(clash(each, held[n]) for n in held if "x0" < n < name)
    ]
    stand = {one["metadata"]["name"]: "n0" for one in made}
    found = world(NODES[:1], [*made, pod("x0", **listening(held["x0"]))], actions="allocate, preempt")
    gives_way(found, "x0", stand, legal)


# --- affinity --------------------------------------------------------------------------------------

APPS = st.sampled_from("pq")
TERMS = st.sampled_from((None, *product((True, False), "pq", (True, False))))
"""(together or apart, with which pods, in the zone or on the node)"""
Term = tuple[bool, str, bool] | None


def wishing(app: str, term: Term) -> Object:
    spec: Object = {"labels": {"app": app}}
    if term:
        together, app, zone = term
        need = {"labelSelector": {"matchLabels": {"app": app}}}
        need["topologyKey"] = "zone" if zone else "kubernetes.io/hostname"  # type: ignore[assignment]
        kind = "podAffinity" if together else "podAntiAffinity"
        spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [need]}}
    return spec


def domain(term: Term, at: str) -> str:
    return HOSTS[at] if term and term[2] else at


def may_enter(name: str, at: str, there: Places, pods: Mapping[str, tuple[str, Term]]) -> bool:
    """Whether Kubernetes would place a pod on a node now."""
    app, term = pods[name]
    if term:
        home = domain(term, at)
        mates = [other for other in there if pods[other][0] == term[1] and domain(term, there[other])]
        near = [other for other in mates if domain(term, there[other]) == home]
        if term[0] and (not home or not (near or (not mates and app == term[1]))):
            return False
        if not term[0] and near:
            return False
    return not any(
        theirs and not theirs[0] and theirs[1] == app and domain(theirs, at) and
        domain(theirs, at) == domain(theirs, there[other])
        for other in there
        for theirs in (pods[other][1],)
    )  # fmt: skip


def enters(running: Places, places: Places, pods: Mapping[str, tuple[str, Term]]) -> bool:
    """Whether the new pods can be placed one after the other, in the order of ``places``."""
    there = {name: at for name, at in places.items() if name in running}
    for name, at in places.items():
        if name not in running:
            if not may_enter(name, at, there, pods):
                return False
            there[name] = at
    return True


def in_some_order(places: Places, rule: Callable[[Places], bool]) -> bool:
    return any(rule({name: places[name] for name in order}) for order in permutations(places))


def agrees_in_some_order(made: Sequence[Object], running: Places, legal: Callable[[Places], bool]) -> None:
    """Each waiting pod is placed beside those before it; the checker accepts any order."""
    names = [one["metadata"]["name"] for one in made]
    agrees(
        world(NODES, made),
        [name for name in names if name not in running],
        running,
        legal,
        sure=False,
        somehow=lambda places: in_some_order(places, legal),
    )


PODS = st.lists(st.tuples(APPS, TERMS), min_size=1, max_size=3)


@worlds(150)
@given(PODS, st.lists(st.tuples(APPS, TERMS, st.sampled_from(list(HOSTS))), max_size=2))
def test_affinity(waiting: list[tuple[str, Term]], standing: list[tuple[str, Term, str]]) -> None:
    """Running pods may break their own rules, which are tested only when a pod starts."""
    pods = {f"x{i}": each for i, each in enumerate(waiting)} | {
        f"r{i}": each[:2] for i, each in enumerate(standing)
    }
    running = {f"r{i}": at for i, (_, _, at) in enumerate(standing)}
    made = [pod(name, running.get(name, ""), **wishing(*each)) for name, each in pods.items()]

    agrees_in_some_order(made, running, lambda places: enters(running, places, pods))


@worlds(150)
@given(st.tuples(APPS, TERMS), st.lists(st.tuples(APPS, TERMS, st.sampled_from(("n0", "n2"))), max_size=3))
def test_affinity_of_pods_that_leave(wanted: tuple[str, Term], standing: list[tuple[str, Term, str]]) -> None:
    """On two nodes in two zones, each with capacity for one pod more than it has."""
    pods = {"x": wanted} | {f"r{i}": each[:2] for i, each in enumerate(standing)}
    running = {f"r{i}": at for i, (_, _, at) in enumerate(standing)}
    made = [pod(name, running.get(name, ""), priority="low", **wishing(*pods[name])) for name in running]
    found = world([NODES[0], NODES[2]], [*made, pod("x", **wishing(*wanted))], actions="allocate, preempt")
    gives_way(found, "x", running, lambda places: enters(running, places, pods))


# --- topology spread -------------------------------------------------------------------------------

SPREADS = st.lists(st.tuples(APPS, st.sampled_from((0, 0, 1, 2))), min_size=1, max_size=3)
"""App and skew (0: no constraint) of every pod."""


def spreading(app: str, skew: int) -> Object:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    constraint = {"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **selector}
    return {"labels": {"app": app}, "topologySpreadConstraints": [constraint] if skew else []}


def enters_spread(running: Places, places: Places, pods: Mapping[str, tuple[str, int]]) -> bool:
    there = {name: at for name, at in places.items() if name in running}
    for name, at in places.items():
        app, skew = pods[name]
        counts = {
            zone: sum(pods[n][0] == app and HOSTS[on] == zone for n, on in there.items()) for zone in "ab"
        }
        if name not in running and skew:
            home = HOSTS[at]
            if not home or counts[home] + 1 - min(counts.values()) > skew:
                return False
        there[name] = at
    return True


@worlds(60)
@given(SPREADS, st.lists(st.tuples(APPS, st.sampled_from(list(HOSTS))), max_size=3))
def test_topology_spread(waiting: list[tuple[str, int]], standing: list[tuple[str, str]]) -> None:
    pods = {f"x{i}": each for i, each in enumerate(waiting)} | {
        f"r{i}": (app, 0) for i, (app, _) in enumerate(standing)
    }
    running = {f"r{i}": at for i, (_, at) in enumerate(standing)}
    made = [pod(name, running.get(name, ""), **spreading(*each)) for name, each in pods.items()]

    agrees_in_some_order(made, running, lambda places: enters_spread(running, places, pods))


@worlds(60)
@given(st.sampled_from((1, 2)), st.lists(st.tuples(APPS, st.sampled_from(("n0", "n1", "n2"))), max_size=4))
def test_topology_spread_of_pods_that_leave(skew: int, standing: list[tuple[str, str]]) -> None:
    """The waiting pod is of app p, and only zone a is possible."""
    pods = {"x": ("p", skew)} | {f"r{i}": (app, 0) for i, (app, _) in enumerate(standing)}
    running = {f"r{i}": at for i, (_, at) in enumerate(standing)}
    made = [pod(name, at, priority="low", labels={"app": pods[name][0]}) for name, at in running.items()]
    taint = [{"key": "t", "effect": "NoSchedule"}]
    nodes = [*NODES[:2], node("n2", labels={"zone": "b"}, taints=taint)]
    found = world(nodes, [*made, pod("x", **spreading("p", skew))], actions="allocate, preempt")
    gives_way(
        found,
        "x",
        running,
        lambda places: places["x"] != "n2" and enters_spread(running, places, pods),
    )


# --- disruption budgets ----------------------------------------------------------------------------

BUDGETS = st.lists(
    st.tuples(APPS, st.sampled_from(("maxUnavailable", "minAvailable")), st.integers(0, 3)), max_size=2
)


@worlds(60)
@given(st.lists(APPS, min_size=1, max_size=4), BUDGETS, st.integers(1, 4))
def test_budgets(apps: list[str], budgets: list[tuple[str, str, int]], need: int) -> None:
    """All running pods are on one full node. Each holds one GPU, and the waiting pod asks for some."""
    pods = {f"v{i}": app for i, app in enumerate(apps)}
    lists = [
        {"metadata": {"name": f"b{i}", "namespace": "default"},
         "spec": {"selector": {"matchLabels": {"app": app}}, field: bound}}
        for i, (app, field, bound) in enumerate(budgets)
    ]  # fmt: skip
    made = [pod(name, "n0", gpus=1, priority="low", labels={"app": app}) for name, app in pods.items()]
    found = world(
        [node("n0", gpus=len(pods))], [*made, pod("x", gpus=need)], actions="allocate, preempt",
        podDisruptionBudgets=lists,
    )  # fmt: skip

    def legal(places: Places) -> bool:
        if len(places) - 1 + need > len(pods):
            return False
        for app, field, bound in budgets:
            mine = [name for name in pods if pods[name] == app]
            gone = sum(name not in places for name in mine)
            if gone and gone > (bound if field == "maxUnavailable" else len(mine) - bound):
                return False
        return True

    gives_way(found, "x", dict.fromkeys(pods, "n0"), legal)
