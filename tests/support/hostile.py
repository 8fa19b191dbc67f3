"""Objects by which one tenant may try to slow all others down, as the API server accepts them, in namespace
``evil``.

Every attack is a function of a size that adds to the lists of a snapshot; ``world`` puts a victim beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.support import devices
from tests.support import objects as raw
from tests.support.objects import Object

VICTIM: Final = "victim"
EVIL: Final = "evil"
_ALL: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_ACTIONS: Final = "allocate, consolidation, reclaim, preempt, stalegangeviction"

Lists = dict[str, list[Object]]
Attack = Callable[[Lists, int], None]


def world(attack: Attack | None, size: int, *, nodes: int = 20, victims: int = 4) -> Object:
    """A snapshot of ``nodes`` empty nodes of 8 GPUs, a waiting gang of ``victims`` pods, and the attack."""
    offers = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    lists: Lists = {
        "nodes": [raw.node(f"n{i:03}", offers, {"topology/rack": f"r{i // 8}"}) for i in range(nodes)],
        "queues": [raw.queue("top", None, 0, dict.fromkeys(("cpu", "memory", "gpu"), _ALL))]
        + [raw.queue(n, "top", 0, dict.fromkeys(("cpu", "memory", "gpu"), _ALL)) for n in (VICTIM, EVIL)],
        "podGroups": [],
        "pods": [],
    }
    if victims:
        group(lists, "gang", namespace=VICTIM, minMember=victims)
        for i in range(victims):
            pod(lists, f"gang-{i}", "gang", {"cpu": "1", "nvidia.com/gpu": "1"}, namespace=VICTIM)
    if attack is not None:
        attack(lists, size)
    config = raw.config(_ACTIONS, spread=False, minruntime={}, proportion={})
    return raw.snapshot(config, {}, lists)


def group(lists: Lists, name: str, *, namespace: str = EVIL, **spec: Any) -> None:
    """A pod group of the queue of the namespace."""
    lists["podGroups"].append(
        raw.group(namespace, name, 60, {"queue": namespace, "minMember": 1, **spec}, {})
    )


def pod(
    lists: Lists,
    name: str,
    owner: str,
    requests: Mapping[str, str] | None = None,
    *,
    namespace: str = EVIL,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> None:
    """A waiting pod."""
    made = raw.pod(namespace, name, 60, dict(requests or {"cpu": "1m"}), owner)
    made["metadata"]["labels"] = dict(labels or {})
    made["spec"].update(spec)
    lists["pods"].append(made)


def one_large_group(lists: Lists, size: int) -> None:
    """That many pods in one group, of which one is enough."""
    group(lists, "large")
    for i in range(size):
        pod(lists, f"p{i}", "large")


def one_large_gang(lists: Lists, size: int) -> None:
    """A gang that can never start."""
    group(lists, "large", minMember=size)
    for i in range(size):
        pod(lists, f"p{i}", "large", {"cpu": "1"})


def many_groups(lists: Lists, size: int) -> None:
    """Groups of one pod each."""
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}")


def many_kinds(lists: Lists, size: int) -> None:
    """Groups whose requests all differ."""
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", {"cpu": f"{i + 1}m", "nvidia.com/gpu": "1"})


def affinity(lists: Lists, size: int) -> None:
    """Pods with required affinity to each other."""
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", labels={"a": "b", "n": str(i)}, affinity=rule)


def anti_affinity(lists: Lists, size: int) -> None:
    """Pods with many different anti-affinity terms against each other."""
    for i in range(size):
        terms = [
            {
                "labelSelector": {"matchLabels": {f"k{i % 50}-{j}": "x"}},
                "topologyKey": ("kubernetes.io/hostname", "topology/rack")[j % 2],
            }
            for j in range(200)
        ]
        rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", labels={f"k{i % 7}-{j}": "y" for j in range(50)}, affinity=rule)


def own_terms(lists: Lists, size: int) -> None:
    """Pods that each have terms of their own, which every pod satisfies."""
    for i in range(size):
        terms = [
            {
                "labelSelector": {"matchExpressions": [{"key": f"k{i}-{j}", "operator": "DoesNotExist"}]},
                "topologyKey": "kubernetes.io/hostname",
                "namespaceSelector": {},
            }
            for j in range(250)
        ]
        rule = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        group(lists, f"g{i}")
        labels = {f"k{i}-0": "x", "n": str(i)}
        pod(lists, f"p{i}", f"g{i}", labels=labels, affinity=rule)


def preferences(lists: Lists, size: int) -> None:
    """Preferred affinities, which only score."""
    for i in range(size):
        terms = [
            {
                "weight": 1 + j % 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchExpressions": [{"key": f"k{j}", "operator": "DoesNotExist"}]},
                    "topologyKey": "kubernetes.io/hostname",
                    "namespaceSelector": {},
                },
            }
            for j in range(100)
        ]
        rule = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", labels={"a": str(i)}, affinity=rule)


def spread(lists: Lists, size: int) -> None:
    """Topology spread of pods over nodes."""
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", labels={"a": "b"}, topologySpreadConstraints=[rule] * 50)


def node_terms(lists: Lists, size: int) -> None:
    """Node affinities with as many values as a pod may have, each its own."""
    for i in range(size):
        needs = [
            {"key": "topology/rack", "operator": "NotIn", "values": [f"v{i}-{j}-{k}" for k in range(60)]}
            for j in range(100)
        ]
        rule = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": needs}]
            }
        }
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", affinity={"nodeAffinity": rule})


def tolerations(lists: Lists, size: int) -> None:
    """Pods that tolerate thousands of taints that no node has."""
    for i in range(size):
        found = [{"key": f"k{i}-{j}", "operator": "Exists", "effect": "NoSchedule"} for j in range(5000)]
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", tolerations=found)


def host_ports(lists: Lists, size: int) -> None:
    """Pods that listen on thousands of ports, each pod on addresses of its own."""
    for i in range(size):
        ports = [
            {"containerPort": 1 + j, "hostPort": 1 + j % 50, "hostIP": f"10.{i % 250}.{j // 250}.{j % 250}"}
            for j in range(4000)
        ]
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}")
        lists["pods"][-1]["spec"]["containers"][0]["ports"] = ports


def subgroups(lists: Lists, size: int) -> None:
    """A group of many small subgroups, with a pod for each."""
    group(lists, "sets", minMember=size, subGroups=[{"name": f"s{i}", "minMember": 1} for i in range(size)])
    for i in range(size):
        pod(lists, f"p{i}", "sets", labels={"kai.scheduler/subgroup-name": f"s{i}"})


def elastic_sets(lists: Lists, size: int) -> None:
    """A group of two subgroups that need one pod each: every further pod has a turn of its own."""
    group(lists, "sets", minMember=2, subGroups=[{"name": name, "minMember": 1} for name in "ab"])
    for i in range(size):
        pod(lists, f"p{i}", "sets", labels={"kai.scheduler/subgroup-name": "ab"[i % 2]})


def levelled_subgroups(lists: Lists, size: int) -> None:
    """Many subgroups that each need a rack, whichever it is."""
    rule = {"topology": "fabric", "requiredTopologyLevel": "topology/rack"}
    sets = [{"name": f"s{i}", "minMember": 1, "topologyConstraint": rule} for i in range(size)]
    group(lists, "sets", minMember=size, subGroups=sets)
    for i in range(size):
        pod(lists, f"p{i}", "sets", labels={"kai.scheduler/subgroup-name": f"s{i}"})


def chains(lists: Lists, size: int) -> None:
    """Groups whose subgroups are nested 99 deep."""
    chain: list[Object] = [{"name": "s0", "minMember": 1}]
    chain += [{"name": f"s{i}", "minMember": 1, "parent": f"s{i - 1}"} for i in range(1, 99)]
    for i in range(size):
        group(lists, f"g{i}", subGroups=chain)
        pod(lists, f"p{i}", f"g{i}", labels={"kai.scheduler/subgroup-name": "s98"})


def running_stem(lists: Lists, size: int) -> None:
    """Running pods, each in a subgroup of its own at the end of the longest chain of subgroups."""
    chain: list[Object] = [{"name": f"s{i}", "parent": f"s{i - 1}" if i else ""} for i in range(97)]
    ends = [{"name": f"e{i}", "parent": "s96", "minMember": 0} for i in range(size)]
    group(lists, "stem", subGroups=[*chain, *ends], minMember=None)
    for i in range(size):
        labels = {"kai.scheduler/subgroup-name": f"e{i}"}
        pod(lists, f"p{i}", "stem", {"cpu": "1m", "nvidia.com/gpu": "1"}, labels=labels)
        _runs(lists["pods"][-1], lists["nodes"][i // 8 % len(lists["nodes"])])


def running_elastic(lists: Lists, size: int) -> None:
    """Small pods of one group that run, of which one is enough, and one has a GPU."""
    nodes = lists["nodes"]
    group(lists, "elastic")
    for i in range(size):
        pod(lists, f"p{i}", "elastic", {"cpu": "1m"} if i else {"cpu": "1m", "nvidia.com/gpu": "1"})
        _runs(lists["pods"][-1], nodes[i % len(nodes)])


def running_beside_full(lists: Lists, size: int) -> None:
    """All GPUs are held by pods of a queue without a quota, beside small pods of one elastic group."""
    nodes = lists["nodes"]
    for one in nodes:
        one["status"]["allocatable"]["pods"] = "5000"
    for i in range(8 * len(nodes)):
        group(lists, f"full{i}")
        pod(lists, f"full{i}", f"full{i}", {"cpu": "1", "nvidia.com/gpu": "1"})
        _runs(lists["pods"][-1], nodes[i // 8])
    group(lists, "small")
    for i in range(size):
        pod(lists, f"small{i}", "small", {"cpu": "1m"})
        _runs(lists["pods"][-1], nodes[i % len(nodes)])
    none = {name: {"quota": 0, "limit": -1, "overQuotaWeight": 0} for name in ("cpu", "memory", "gpu")}
    next(one for one in lists["queues"] if one["metadata"]["name"] == EVIL)["spec"]["resources"] = none


def running_budgets(lists: Lists, size: int) -> None:
    """All GPUs are held by pods of a queue without a quota, each with a budget of its own."""
    running_beside_full(lists, 0)
    lists["podDisruptionBudgets"] = []
    ours = [one for one in lists["pods"] if one["metadata"]["namespace"] == EVIL]
    for i in range(size):
        if i < len(ours):
            ours[i]["metadata"]["labels"] = {"all": "x", "n": str(i)}
        alone = {"matchLabels": {"all": "x", "n": str(i)}}
        lists["podDisruptionBudgets"].append(
            {
                "metadata": {"namespace": EVIL, "name": f"b{i}"},
                "spec": {"minAvailable": 0, "selector": alone},
            }
        )


def resources(lists: Lists, size: int) -> None:
    """Every pod asks for resources with invented names."""
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", {"cpu": "1m", **{f"evil.example/r{i}-{j}": "1" for j in range(60)}})


def gated_terms(lists: Lists, size: int) -> None:
    """The same as ``own_terms``, of pods that nothing decides about."""
    own_terms(lists, size)
    _gate(lists)


def gated_resources(lists: Lists, size: int) -> None:
    """The same as ``resources``, of pods that nothing decides about."""
    resources(lists, size)
    _gate(lists)


def _gate(lists: Lists) -> None:
    for one in lists["pods"]:
        if one["metadata"]["namespace"] == EVIL:
            one["spec"]["schedulingGates"] = [{"name": "evil.example/gate"}]


def running_terms(lists: Lists, size: int) -> None:
    """Small pods that run with terms of their own, beside others that run with labels of their own."""
    nodes = lists["nodes"]
    for one in nodes:
        one["status"]["allocatable"]["pods"] = "5000"
    for i in range(size):
        terms = [
            {"labelSelector": {"matchLabels": {"n": f"{i}-{j}"}}, "topologyKey": "kubernetes.io/hostname"}
            for j in range(250)
        ]
        group(lists, f"g{i}")
        rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        pod(lists, f"p{i}", f"g{i}", affinity=rule)
        _runs(lists["pods"][-1], nodes[i % len(nodes)])
    for i in range(5 * size):
        group(lists, f"o{i}", namespace=VICTIM)
        pod(lists, f"o{i}", f"o{i}", namespace=VICTIM, labels={"n": str(i)})
        _runs(lists["pods"][-1], nodes[i % len(nodes)])


def volumes(lists: Lists, size: int) -> None:
    """Pods with volumes, ConfigMaps and claims that do not exist."""
    for i in range(size):
        found: list[Object] = [
            {"name": f"v{j}", "persistentVolumeClaim": {"claimName": f"c{i}-{j}"}} for j in range(200)
        ]
        found += [{"name": f"m{j}", "configMap": {"name": f"m{i}-{j}"}} for j in range(200)]
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", volumes=found)


def device_claims(lists: Lists, size: int) -> None:
    """Claims that ask for all devices of a node in turn, and for two of them that no node has alike."""
    names = [node["metadata"]["name"] for node in lists["nodes"]]
    lists["deviceClasses"] = [devices.device_class()]
    lists["resourceSlices"] = [
        devices.slice_of(
            name, *({"name": f"d{k}", "attributes": {"id": {"string": f"{name}-{k}"}}} for k in range(8))
        )
        for name in names
    ]
    lists["resourceClaims"] = []
    alike = {"requests": ["r6", "r7"], "matchAttribute": f"{devices.DRIVER}/id"}
    for i in range(size):
        requests = [devices.exact(1, name=f"r{k}") for k in range(8)]
        requests[0]["exactly"]["selectors"] = [{"cel": {"expression": f"{i} >= 0"}}]
        lists["resourceClaims"].append(
            devices.claim(f"c{i}", *requests, constraints=(alike,), namespace=EVIL)
        )
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", resourceClaims=devices.claims(f"c{i}"))


def local_volumes(lists: Lists, size: int) -> None:
    """Pods with claims of many sizes, one more than a node has volumes."""
    names = [node["metadata"]["name"] for node in lists["nodes"]]
    lists["storageClasses"] = [devices.storage_class("local", devices.STATIC)]
    lists["persistentVolumes"] = [
        devices.volume(f"{name}-{k}", f"{10 + k}Gi", nodes=devices.on_nodes("kubernetes.io/hostname", name))
        for name in names
        for k in range(11)
    ]
    lists["persistentVolumeClaims"] = []
    for i in range(size):
        mine = [f"c{i}-{k}" for k in range(12)]
        lists["persistentVolumeClaims"] += [
            devices.volume_claim(name, f"{k + 1}Gi", meta={"namespace": EVIL}) for k, name in enumerate(mine)
        ]
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}", volumes=devices.volumes(*mine))


def fractions(lists: Lists, size: int) -> None:
    """Shares of GPUs in sizes that do not fit well together."""
    for i in range(size):
        group(lists, f"g{i}")
        pod(lists, f"p{i}", f"g{i}")
        lists["pods"][-1]["metadata"]["annotations"]["gpu-fraction"] = f"0.{1 + i % 9}{i % 7}"


def gpu_groups(lists: Lists, size: int) -> None:
    """Pods that declare by labels that they share many GPUs: some run, the others wait."""
    for i in range(size):
        group(lists, f"g{i}")
        labels = {f"runai-gpu-group/{i}-{j}": f"{i}-{j}" for j in range(200)}
        pod(lists, f"p{i}", f"g{i}", labels=labels)
        made = lists["pods"][-1]
        made["metadata"].setdefault("annotations", {})["gpu-fraction"] = "0.01"
        if i % 2:
            _runs(made, lists["nodes"][i % len(lists["nodes"])])


def elastic_claims(lists: Lists, size: int) -> None:
    """Pods of one group with a claim each; half of them run, and hold their devices."""
    names = [one["metadata"]["name"] for one in lists["nodes"]]
    lists["deviceClasses"] = [devices.device_class()]
    held = [{"name": f"d{k}"} for k in range(-(-size // len(names)))]
    lists["resourceSlices"] = [devices.slice_of(name, *held) for name in names]
    lists["resourceClaims"] = []
    group(lists, "elastic")
    for i in range(size):
        rank, at = divmod(i, len(names))
        allocation = devices.allocation(names[at], f"d{rank}") if rank % 2 else None
        pod(lists, f"p{i}", "elastic", resourceClaims=devices.claims(f"c{i}"))
        made = devices.claim(f"c{i}", devices.exact(1), held=allocation, namespace=EVIL)
        if allocation:
            user = {"resource": "pods", "name": f"p{i}", "uid": lists["pods"][-1]["metadata"]["uid"]}
            made["status"]["reservedFor"] = [user]
            _runs(lists["pods"][-1], lists["nodes"][at])
        lists["resourceClaims"].append(made)


def elastic_affinity(lists: Lists, size: int) -> None:
    """Pods of one group that all want to be in the domain of another one."""
    own = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "topology/rack"}
    wanted = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}
    group(lists, "elastic")
    for i in range(size):
        pod(lists, f"p{i}", "elastic", labels={"a": "b"}, affinity=wanted)


def elastic_spread(lists: Lists, size: int) -> None:
    """Pods of one group that all spread over the nodes."""
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    for one in lists["nodes"]:
        one["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = one["metadata"]["name"]
    group(lists, "elastic")
    for i in range(size):
        pod(lists, f"p{i}", "elastic", labels={"a": "b"}, topologySpreadConstraints=[rule])


def _runs(made: Object, node: Object) -> None:
    made["spec"]["nodeName"] = node["metadata"]["name"]
    made["status"] = {"phase": "Running"}


def odd_numbers(lists: Lists, size: int) -> None:
    """Amounts at the ends of what can be written."""
    odd = ("9E", "1e18", "0.000000001", "9223372036854775807", "1Ei", "-1", "1e400", "0")
    for i in range(size):
        group(lists, f"g{i}", minMember=2**31 - 1 if i % 3 == 0 else 1)
        pod(
            lists,
            f"p{i}",
            f"g{i}",
            {"cpu": odd[i % 8], "memory": odd[i // 8 % 8], "nvidia.com/gpu": odd[i // 64 % 8]},
        )


ATTACKS: Final[dict[Attack, int]] = {
    one_large_group: 20_000,
    one_large_gang: 20_000,
    many_groups: 20_000,
    many_kinds: 3_000,
    affinity: 3_000,
    anti_affinity: 300,
    own_terms: 300,
    preferences: 300,
    spread: 1_000,
    node_terms: 300,
    tolerations: 100,
    host_ports: 100,
    subgroups: 1_000,
    elastic_sets: 20_000,
    levelled_subgroups: 500,
    chains: 200,
    resources: 500,
    gated_terms: 300,
    gated_resources: 500,
    running_terms: 300,
    volumes: 100,
    device_claims: 300,
    local_volumes: 300,
    fractions: 3_000,
    odd_numbers: 500,
    gpu_groups: 300,
}
"""Sizes at which each attack is far beyond the work of a cycle."""

_NESTED: Any = 1
for _ in range(300):
    _NESTED = {"a": _NESTED}
_LOOPS = "true"
for _level in range(5):
    _LOOPS = f"[1,2,3,4,5,6,7,8,9].all(x{_level}, {_LOOPS})"
BAD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 2**70, -1, 1e308, -0.5, "", "x" * 10_000, "9" * 400, "1e999999", "-1Ei", "0.0000001"),
    *("\x1b[31mred", "a\nb", "2026-13-45T99:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *("device.x.matches('(a+)+$')", _LOOPS, "∞", "\u202e", "a/b/c"),
    *([], {}, [None], [[]], [{}] * 500, {f"k{i}": str(i) for i in range(500)}, ["x"] * 2000, _NESTED),
)
"""By size, depth, number, expression, text and time."""
