"""Clusters that are dense in what stateful rules read: ``stateful(seed)`` gives a cluster and its settings.

``extras`` and ``options`` give some waiting pods one object of each kind. Here pods that run have such
objects, too, and objects meet: two claims in one pod, one claim in two pods, volumes beside capacities that
make them. Running pods may break rules that are only asked when a pod starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from kai_cp_models.settings import Settings
from tests.support import objects as raw
from tests.support.clusters import FEATURES, random_cluster
from tests.support.devices import (
    DRIVER,
    STATIC,
    capacity,
    csi_driver,
    csi_node,
    device,
    device_class,
    exact,
    on_nodes,
    slice_of,
    storage_class,
    taint_rule,
    volume,
    volume_claim,
)
from tests.support.extras import HOST, KINDS, TOGETHER

SHARED: Final = "shared.example.com"
"""The driver of devices that several claims share."""
PLUGGED: Final = "example.com/nic"
"""An extended resource that a class of devices backs."""
BUSY: Final = FEATURES - {
    "actions",
    "fractions",
    "memory",
    "mig",
    "orphans",
    "overcommit",
    "restricted",
    "stuck",
}
"""Features of clusters from which a share is drawn: few pods wait for other reasons."""


def stateful(seed: int) -> tuple[raw.Object, Settings]:
    """A random cluster with objects of a random part of ``DENSE`` and of other kinds, and its settings."""
    rng = Random(seed)
    share = rng.choice((0.1, 0.3))
    cluster = random_cluster(seed, frozenset(f for f in sorted(BUSY) if rng.random() < share))
    lists, share = cluster["rawObjects"], rng.choice((0.3, 0.6))
    for name in ("budgets", "skew", "zones", "starts"):
        if rng.random() < share / 2:
            KINDS[name](lists, cluster["config"], rng)
    for name in sorted(DENSE):
        if rng.random() < share:
            DENSE[name](lists, rng)
    cluster["schedulerParams"]["scheduleCSIStorage"] = rng.random() < 0.5
    return cluster, TOGETHER


def _ours(lists: raw.Object) -> Iterator[tuple[raw.Object, bool]]:
    """The pods of pod groups, and whether each runs or waits; others have no objects of their own."""
    promised = {(one["metadata"]["namespace"], one["spec"]["podName"]) for one in lists["bindRequests"]}
    for pod in lists["pods"]:
        metadata, phase = pod["metadata"], pod["status"]["phase"]
        if "pod-group-name" not in metadata["annotations"] or metadata.get("deletionTimestamp"):
            continue
        if phase == "Running":
            yield pod, True
        elif phase == "Pending" and "nodeName" not in pod["spec"] and _where(pod) not in promised:
            yield pod, False


def _app(pod: raw.Object) -> str:
    return str(pod["metadata"]["labels"].get("app", ""))


def _where(pod: raw.Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


# --- neighbours ------------------------------------------------------------------------------------


def _terms(lists: raw.Object, rng: Random) -> None:
    """One or two terms of each kind for some apps; they name namespaces, or select them."""
    lists["namespaces"] = [
        {"metadata": {"name": name, "labels": {"team": rng.choice("xy")}}}
        for name in sorted({pod["metadata"]["namespace"] for pod in lists["pods"]})
    ]
    names = [one["metadata"]["name"] for one in lists["namespaces"]]
    apps = sorted({_app(pod) for pod, _ in _ours(lists)}) or [""]

    def term() -> raw.Object:
        wanted = rng.sample(apps, min(len(apps), rng.choice((1, 1, 2, 4))))
        found: raw.Object = {
            "topologyKey": rng.choice(("zone", HOST, HOST, raw.LEVELS[1])),
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": wanted}]},
        }
        where = rng.random()
        if where < 0.3:
            found["namespaces"] = rng.sample(names, rng.randint(1, len(names)))
        elif where < 0.5:
            found["namespaceSelector"] = {"matchLabels": {"team": "x"}} if where < 0.4 else {}
        return found

    for app in apps:
        spec: raw.Object = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            if rng.random() < 0.25:
                spec.setdefault(kind, {})["requiredDuringSchedulingIgnoredDuringExecution"] = [
                    term() for _ in range(rng.choice((1, 1, 2)))
                ]
            if rng.random() < 0.2:
                spec.setdefault(kind, {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": rng.randint(1, 100), "podAffinityTerm": term()}
                ]
        for pod, _ in _ours(lists):
            if spec and _app(pod) == app:
                pod["spec"]["affinity"] = {**pod["spec"].get("affinity", {}), **spec}


def _ports(lists: raw.Object, rng: Random) -> None:
    """Host ports of some apps; pods that run hold theirs."""
    wants = {
        _app(pod): (rng.choice((80, 81)), rng.choice(("", "10.0.0.1", "10.0.0.2")))
        for pod, _ in _ours(lists)
        if rng.random() < 0.5
    }
    held = set()
    for pod, runs in _ours(lists):
        if _app(pod) in wants:
            port, ip = wants[_app(pod)]
            place = (pod["spec"].get("nodeName"), port)
            if runs and place in held:
                continue
            held.add(place)
            made = {"containerPort": port, "hostPort": port, "hostIP": ip, "protocol": "TCP"}
            pod["spec"]["containers"][0]["ports"] = [made]


# --- volumes ---------------------------------------------------------------------------------------


def _volumes(lists: raw.Object, rng: Random) -> None:
    """Volumes that stand, capacities that overlap, limits of nodes, and claims of one or two pods."""
    zones = ("a", "b")
    hosts = [node["metadata"]["name"] for node in lists["nodes"]]
    local = {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}
    lists["storageClasses"] = [
        storage_class("local", STATIC),
        storage_class("net"),
        storage_class("zoned", **local),
        storage_class("now", mode="Immediate"),
    ]
    lists["csiDrivers"] = [csi_driver()] if rng.random() < 0.7 else []
    lists["csiNodes"] = [csi_node(host, rng.randint(1, 3)) for host in hosts if rng.random() < 0.5]
    lists["csiStorageCapacities"] = [
        capacity(f"{kind}-{zone}", f"{rng.choice((0, 6, 12))}Gi", "zone", zone, kind)
        for kind in ("net", "zoned")
        for zone in zones
        if rng.random() < 0.8
    ]
    if rng.random() < 0.3:
        lists["csiStorageCapacities"].append(capacity("one", "6Gi", HOST, rng.choice(hosts), "net"))
    lists["persistentVolumes"], lists["persistentVolumeClaims"] = [], []
    for i in range(rng.randint(0, 2 * len(hosts))):
        place = rng.choice((None, on_nodes("zone", rng.choice(zones)), on_nodes(HOST, rng.choice(hosts))))
        kind = rng.choice(("local", "local", "net"))
        lists["persistentVolumes"].append(
            volume(f"pv{i}", rng.choice(("4Gi", "8Gi")), nodes=place, storage_class=kind)
        )
    made: dict[tuple[str, str], list[str]] = {}
    for pod, runs in _ours(lists):
        if rng.random() < 0.5:
            continue
        namespace, name = _where(pod)
        mine = [_volume_claim(lists, pod, f"{name}-{i}", rng, runs) for i in range(rng.choice((1, 1, 2)))]
        others = made.setdefault((namespace, _app(pod)), [])
        if others and rng.random() < 0.3:
            mine[0] = rng.choice(others)
        others += mine
        pod["spec"]["volumes"] = [
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(mine)
        ]


def _volume_claim(lists: raw.Object, pod: raw.Object, name: str, rng: Random, runs: bool) -> str:
    """A claim in the pod's namespace; it has its volume if the pod runs, and else now and then."""
    namespace, owner = _where(pod)
    modes = (rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")),)
    kind = rng.choice(("local", "net", "net", "zoned", "now" if rng.random() < 0.2 else "net"))
    size = rng.choice(("3Gi", "5Gi"))
    bound = f"of-{namespace}-{name}" if runs or rng.random() < 0.3 else ""
    if bound:
        at = pod["spec"].get("nodeName")
        place = on_nodes(HOST, at) if at and rng.random() < 0.5 else None
        if not at and rng.random() < 0.5:
            place = on_nodes("zone", rng.choice("ab"))
        one = volume(bound, size, claim=name, nodes=place, storage_class=kind, modes=modes)
        one["spec"]["claimRef"]["namespace"] = namespace
        lists["persistentVolumes"].append(one)
    claim = volume_claim(name, size, volume=bound, storage_class=kind, modes=modes)
    claim["metadata"]["namespace"] = namespace
    if rng.random() < 0.4:
        claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": pod["metadata"]["uid"]}]
    lists["persistentVolumeClaims"].append(claim)
    return name


# --- devices ---------------------------------------------------------------------------------------


def _devices(lists: raw.Object, rng: Random) -> None:
    """Devices of nodes and of the whole cluster: alone, in parts of one card, shared by amounts, tainted.

    Some back an extended resource. Claims of running pods hold some of them.
    """
    hosts = [node["metadata"]["name"] for node in lists["nodes"]]
    lists["deviceClasses"] = [
        device_class("nic", **({"extendedResourceName": PLUGGED} if rng.random() < 0.5 else {}),
                     selectors=_driver(DRIVER)),
        device_class("share", selectors=_driver(SHARED)),
    ]  # fmt: skip
    counters = [{"name": "card", "counters": {"cores": {"value": "4"}}}]
    slices, free = [], dict[str, list[str]]()
    for host in hosts:
        parts = rng.random() < 0.4
        devices = []
        for i in range(rng.randint(0, 4)):
            more: raw.Object = {"attributes": {"fast": {"bool": i % 2 == 0}, "root": {"int": i // 2}}}
            if parts:
                draws = {"cores": {"value": str(rng.choice((1, 2, 3)))}}
                more["consumesCounters"] = [{"counterSet": "card", "counters": draws}]
            if rng.random() < 0.15:
                more["taints"] = [{"key": "ill", "effect": rng.choice(("NoSchedule", "NoExecute", "None"))}]
            devices.append(device(f"d{i}", **more))
        free[host] = [one["name"] for one in devices]
        slices.append(slice_of(host, *devices, sharedCounters=counters))
        if rng.random() < 0.5:
            slices.append(slice_of(host, _shareable("s0", rng), _shareable("s1", rng), driver=SHARED))
    if rng.random() < 0.4:
        far = rng.choice(({"allNodes": True}, {"nodeSelector": on_nodes("zone", "a")}))
        slices.append(slice_of("far", device("f0"), device("f1"), **far))
    lists["resourceSlices"] = slices
    if rng.random() < 0.3:
        lists["deviceTaintRules"] = [taint_rule(driver=DRIVER, pool=rng.choice(hosts))]
    lists["resourceClaims"] = []
    made: dict[tuple[str, str], list[str]] = {}
    for pod, runs in _ours(lists):
        if rng.random() < 0.5:
            continue
        if PLUGGED in str(lists["deviceClasses"]) and not runs and rng.random() < 0.4:
            pod["spec"]["containers"][0]["resources"]["requests"][PLUGGED] = str(rng.choice((1, 1, 2)))
            continue
        others = made.setdefault((_where(pod)[0], _app(pod)), [])
        host = pod["spec"].get("nodeName")
        if others and not runs and rng.random() < 0.4:
            mine = rng.choice(others)
        elif runs and free.get(host):
            mine = _held_claim(lists, pod, free[host].pop())
        elif not runs:
            mine = _open_claim(lists, pod, rng)
        else:
            continue
        others.append(mine)
        pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": mine}]


def _driver(name: str) -> list[raw.Object]:
    return [{"cel": {"expression": f"device.driver == '{name}'"}}]


def _shareable(name: str, rng: Random) -> raw.Object:
    """A device of which claims take amounts."""
    policy: raw.Object = {"default": "2"}
    if rng.random() < 0.5:
        policy |= (
            {"validRange": {"min": "2", "step": "2"}} if rng.random() < 0.5 else {"validValues": ["2", "4"]}
        )
    amount = {"bandwidth": {"value": rng.choice(("4", "6")), "requestPolicy": policy}}
    return device(name, allowMultipleAllocations=True, capacity=amount)


def _claim(lists: raw.Object, pod: raw.Object, spec: raw.Object, status: raw.Object) -> str:
    namespace, owner = _where(pod)
    name = f"{owner}-c"
    meta = {"name": name, "namespace": namespace, "uid": f"claim-{namespace}-{name}"}
    lists["resourceClaims"].append({"metadata": meta, "spec": {"devices": spec}, "status": status})
    return name


def _held_claim(lists: raw.Object, pod: raw.Object, name: str) -> str:
    held = {"request": "r", "driver": DRIVER, "pool": pod["spec"]["nodeName"], "device": name}
    users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]
    nodes = on_nodes(HOST, pod["spec"]["nodeName"])
    status = {"allocation": {"devices": {"results": [held]}, "nodeSelector": nodes}, "reservedFor": users}
    return _claim(lists, pod, {"requests": [exact()]}, status)


def _open_claim(lists: raw.Object, pod: raw.Object, rng: Random) -> str:
    fast = [{"cel": {"expression": f"device.attributes['{DRIVER}'].fast"}}]
    ill = {"tolerations": [{"key": "ill", "operator": "Exists"}]}
    ways: tuple[Callable[[], Any], ...] = (
        lambda: exact(rng.choice((1, 1, 2)), **(ill if rng.random() < 0.3 else {})),
        lambda: exact(1, selectors=fast),
        lambda: exact(1, device_class="share", capacity={"requests": {"bandwidth": rng.choice("123")}}),
        lambda: exact(1, device_class="share"),
        lambda: {"name": "r", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        lambda: {"name": "r", "firstAvailable": [
            {"name": "two", "deviceClassName": "nic", "count": 2, "selectors": fast},
            {"name": "one", "deviceClassName": rng.choice(("nic", "share"))}]},
    )  # fmt: skip
    spec: raw.Object = {"requests": [rng.choice(ways)()]}
    if rng.random() < 0.3:
        spec["requests"].append({**exact(1), "name": "r2"})
    if rng.random() < 0.3:
        kind = rng.choice(("matchAttribute", "distinctAttribute"))
        spec["constraints"] = [{"requests": [], kind: f"{DRIVER}/root"}]
    return _claim(lists, pod, spec, {})


DENSE: Final[dict[str, Callable[[raw.Object, Random], None]]] = {
    "devices": _devices,
    "ports": _ports,
    "terms": _terms,
    "volumes": _volumes,
}
