"""Attacks by an account that may only create pods, pod groups and claims in one namespace."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import configuration
from tests.e2e.admin import AdminTransport
from tests.e2e.world import KINDS, NAMESPACE, World

CREATORS = 8
"""Requests at the same time, for attacks of many objects."""
Object = dict[str, Any]
Told = tuple[str, str, str]
"""Kind and name of an object ("": any), and words of an event about it."""
Attack = Callable[["Attacker"], Told]


class Attacker:
    """An account without rights beyond one namespace, whose queue exists."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.namespace = f"{world.name}-attacker"
        world.api.create(NAMESPACE, "", {"metadata": {"name": self.namespace}})
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
            {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["create"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["create"]},
        ]
        meta = {"name": "may-create", "namespace": self.namespace}
        world.api.create(KINDS["Role"], self.namespace, {"metadata": meta, "rules": rules})
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "may-create"},
            "subjects": [{"kind": "User", "name": "nobody", "apiGroup": group}],
        }
        world.api.create(KINDS["RoleBinding"], self.namespace, binding)
        self.api = AdminTransport(configuration(str(world.plane.kubeconfig("nobody"))))
        self.queue = world.add_queue("attacker")

    def close(self) -> None:
        for kind in (r.PODS, r.POD_GROUPS, r.RESOURCE_CLAIMS):
            # Listed as our processes list, because a plain reader may not be able to read what was sent.
            listed = [item["metadata"] for item in self.world.api.list_pages(kind)[0]]
            names = [meta["name"] for meta in listed if meta["namespace"] == self.namespace]
            with ThreadPoolExecutor(CREATORS) as removers:
                remove = partial(self.world.api.delete, kind, self.namespace, grace=0)
                for _ in removers.map(remove, names):
                    pass
        self.world.api.delete(NAMESPACE, "", self.namespace)
        self.api.close()

    def group(self, name: str, minimum: int = 1, **spec: Any) -> None:
        meta = {"name": name, "labels": self.world.labels}
        body = {"metadata": meta, "spec": {"queue": self.queue, "minMember": minimum, **spec}}
        self.api.create(r.POD_GROUPS, self.namespace, body)

    def pod(self, name: str, group: str = "", *, requests: Object | None = None, **more: Any) -> None:
        needs = {"cpu": "1m", **(requests or {})}
        containers = [{"name": "c", "image": "none", "resources": {"limits": needs, "requests": needs}}]
        notes = {**({"pod-group-name": group} if group else {}), **more.pop("annotations", {})}
        meta = {"name": name, "annotations": notes, "labels": more.pop("labels", {})}
        meta["ownerReferences"] = more.pop("owners", [])
        spec = {"schedulerName": "kai-scheduler", "containers": containers, **more}
        self.api.create(r.PODS, self.namespace, {"metadata": meta, "spec": spec})

    def pods(self, names: Iterable[str], group: str, **more: Any) -> None:
        """Many pods that differ only by name, several requests at a time; ``more`` as in :meth:`pod`."""
        with ThreadPoolExecutor(CREATORS) as creators:
            for _ in creators.map(lambda name: self.pod(name, group, **more), names):
                pass

    def claim(self, name: str, spec: Object) -> None:
        meta = {"name": name, "labels": {"kai.scheduler/queue": self.queue}}
        self.api.create(r.RESOURCE_CLAIMS, self.namespace, {"metadata": meta, "spec": {"devices": spec}})

    def told(self, kind: str, name: str, words: str) -> bool:
        """Whether an event about the object has these words; name "": any object of the kind."""
        return any(
            words in event["message"]
            for event in self.world.api.raw(r.EVENTS.path(self.namespace))["items"]
            if event["involvedObject"]["kind"] == kind and name in ("", event["involvedObject"]["name"])
        )


def request(selector: str = "") -> Object:
    selectors = [{"cel": {"expression": selector}}] if selector else []
    return {"name": "r", "exactly": {"deviceClassName": "hostile.example", "selectors": selectors}}


def devices(world: World) -> None:
    """A device class, and a device of that class on the first node."""
    if world.api.get(r.DEVICE_CLASSES, "", "hostile.example") is None:
        world.api.create(r.DEVICE_CLASSES, "", {"metadata": {"name": "hostile.example"}, "spec": {}})
    pool = {"name": world.nodes[0], "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "hostile.example", "nodeName": world.nodes[0], "pool": pool, "devices": [{"name": "d"}]}
    world.api.create(r.RESOURCE_SLICES, "", {"metadata": {"name": f"{world.name}-slice"}, "spec": spec})


def deep_claims(attacker: Attacker) -> Told:
    # The client's own writer stops at 254 levels, so the text is made by hand.
    for levels in (700, 2000):
        # Lists, because the server accepts 10 KiB of parameters.
        text = '{"a":' + "[" * levels + "]" * levels + "}"
        body = (
            f'{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{{"name":"deep-{levels}"}},'
            '"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"hostile.example"}}],'
            f'"config":[{{"requests":["r"],"opaque":{{"driver":"d.example","parameters":{text}}}}}]}}}}}}'
        )
        post(attacker, r.RESOURCE_CLAIMS.path(attacker.namespace), body)
        attacker.group(f"deep-{levels}")
        claims = [{"name": "c", "resourceClaimName": f"deep-{levels}"}]
        attacker.pod(f"deep-{levels}", f"deep-{levels}", resourceClaims=claims)
    return ("ResourceClaim", "deep-2000", "nested deeper than 250 levels")


def post(attacker: Attacker, path: str, body: str) -> None:
    settings = configuration(str(attacker.world.plane.kubeconfig("nobody")))
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    token = settings.api_key.get("authorization") or settings.api_key.get("BearerToken") or ""
    headers = {"Content-Type": "application/json", "Authorization": token}
    asked = urllib.request.Request(settings.host + path, body.encode(), headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(asked, timeout=20) as answer:
            assert answer.status == 201
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()[:500]) from error


def costly_selector(attacker: Attacker) -> Told:
    body = "true"
    for level in range(4):
        body = f"[1,2,3,4,5,6,7,8,9,10].all(x{level}, {body})"
    attacker.claim("costly", {"requests": [request(body)]})
    attacker.group("costly")
    attacker.pod("costly", "costly", resourceClaims=[{"name": "c", "resourceClaimName": "costly"}])
    return ("ResourceClaim", "costly", "takes more than 10000 steps for one device")


def odd_annotation(attacker: Attacker) -> Told:
    for i in range(5):
        attacker.group(f"odd-{i}")
        attacker.pod(f"odd-{i}", f"odd-{i}", annotations={"gpu-fraction-num-devices": "x"})
    return ("Pod", "odd-0", "is to be bound to node")


def false_labels(attacker: Attacker) -> Told:
    """Labels on pods that only KAI itself sets."""
    for app in ("scaling-pod", "kai-resource-reservation"):
        attacker.group(app)
        attacker.pod(app, app, labels={"app": app}, requests={"nvidia.com/gpu": "1"})
    return ("Pod", "kai-resource-reservation", "is to be bound to node")


def many_terms(attacker: Attacker) -> Told:
    terms = [
        {"labelSelector": {"matchLabels": {f"k{i}": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        for i in range(5000)
    ]
    attacker.group("terms")
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    attacker.pod("terms", "terms", affinity=rule)
    return ("Pod", "terms", "5000 terms are more than 256 (limits.terms_per_pod)")


def many_selector_terms(attacker: Attacker) -> Told:
    terms = [{"matchExpressions": [{"key": f"k{i}", "operator": "In", "values": ["x"]}]} for i in range(1500)]
    attacker.group("selectors")
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    attacker.pod("selectors", "selectors", affinity={"nodeAffinity": rule})
    return ("Pod", "selectors", "1500 terms are more than 256 (limits.terms_per_pod)")


def many_resources(attacker: Attacker) -> Told:
    attacker.group("resources")
    attacker.pod("resources", "resources", requests={f"evil.example/r{i}": "1" for i in range(5000)})
    return ("Pod", "resources", "5001 resources are more than 64 (limits.resources_per_pod)")


def many_ports(attacker: Attacker) -> Told:
    ports = [{"containerPort": 1 + i, "hostPort": 1 + i, "hostIP": f"10.0.0.{i % 250}"} for i in range(300)]
    containers = [{"name": "c", "image": "none", "ports": ports}]
    attacker.group("ports")
    attacker.pod("ports", "ports", containers=containers)
    return ("Pod", "ports", "300 host ports are more than 256 (limits.host_ports_per_pod)")


def many_names(attacker: Attacker) -> Told:
    """30,000 names of resources that no node has."""
    attacker.group("names")
    with ThreadPoolExecutor(CREATORS) as creators:
        for i in range(500):
            invented = {f"evil.example/r{i}-{j}": "1" for j in range(60)}
            creators.submit(attacker.pod, f"names-{i:03}", "names", requests=invented)
    return ("Pod", "", "limits.unknown_resources_per_namespace")


def many_reports(attacker: Attacker) -> Told:
    """Pods that each get an event."""
    attacker.group("reports")
    label = {"kai.scheduler/subgroup-name": "none"}
    attacker.pods((f"reports-{i}" for i in range(2000)), "reports", labels=label)
    return ("Pod", "", "objects of this namespace, of which this is the first, come later")


def many_subgroups(attacker: Attacker) -> Told:
    names = [f"s{i}" for i in range(2001)]
    attacker.group("subgroups", 2001, subGroups=[{"name": name, "minMember": 1} for name in names])
    for name in names[:5]:
        attacker.pod(f"subgroups-{name}", "subgroups", labels={"kai.scheduler/subgroup-name": name})
    return ("PodGroup", "subgroups", "2001 subgroups are more than 2000")


def costly_subgroups(attacker: Attacker) -> Told:
    """1,000 subgroups with a pod each do not fit on the nodes, and finding that out takes long."""
    names = [f"s{i}" for i in range(1000)]
    attacker.group("costly-gang", 1000, subGroups=[{"name": name, "minMember": 1} for name in names])
    with ThreadPoolExecutor(CREATORS) as creators:
        for name in names:
            label = {"kai.scheduler/subgroup-name": name}
            creators.submit(attacker.pod, f"costly-{name}", "costly-gang", labels=label)
    # Not for one pod: 200 events come at once, and a later one may have the words of its explanation.
    return ("PodGroup", "costly-gang", "too few")


def long_chains(attacker: Attacker) -> Told:
    """Chains of the allowed length; a group that asks for so little is served."""
    chain = [{"name": "s0", "minMember": 1}]
    chain += [{"name": f"s{i}", "minMember": 1, "parent": f"s{i - 1}"} for i in range(1, 99)]
    for i in range(5):
        attacker.group(f"chain-{i}", subGroups=chain)
        attacker.pod(f"chain-{i}", f"chain-{i}", labels={"kai.scheduler/subgroup-name": "s98"})
    return ("Pod", "chain-0", "is to be bound to node")


def large_order(attacker: Attacker) -> Told:
    """A gang of 1,000 pods that fits: a thousand orders have to be sent and carried out."""
    attacker.world.add_nodes(12)
    attacker.group("order", 1000)
    attacker.pods((f"order-{i}" for i in range(1000)), "order")
    return ("Pod", "", "is to be bound to node")


ATTACKS: tuple[Attack, ...] = (
    deep_claims,
    costly_selector,
    odd_annotation,
    false_labels,
    many_terms,
    many_selector_terms,
    many_resources,
    many_names,
    many_ports,
    many_subgroups,
    costly_subgroups,
    long_chains,
    many_reports,
)
