"""Claimed devices (2.5): the devices that decisions allocate exist, fit the request, and are given out once.

The check follows the text of the DRA API, request by request and device by device, without a search. It
shares the parsed records and the CEL evaluation with the rule, but not the rule's accounting and search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kai_cp_models.check.planned_cluster import UNREADABLE, PlannedCluster, Violation, text_of
from kai_cp_models.check.selectors import reaches
from kai_cp_models.pods import EXTENDED_RESOURCES, GPU, MILLI, GpuKind, Pod, PodKey, PodStatus, Requirement
from kai_cp_models.quantity import Version, exact
from kai_cp_models.records.devices import (
    ALL,
    EXACT,
    AllocatedDevice,
    Claim,
    ClaimAllocation,
    Counter,
    DeviceClass,
    DeviceId,
    DeviceView,
    SharingPolicy,
    Wanted,
)
from kai_cp_models.rules.stateful.dra.catalog import Catalog, capacity_of, catalog_of
from kai_cp_models.rules.stateful.dra.extended import SERVED
from kai_cp_models.rules.stateful.dra.refs import refs_of

MAX_USERS = 256
MAX_DEVICES = 32
_ALLOCATING = {"resourceClaimAllocations", "extendedResourceClaimAllocation"}
ClaimName = tuple[str, str]
Sharers = Mapping[ClaimName, Sequence[PodKey]]
"""The placed pods that use a claim."""
Written = Mapping[str, ClaimAllocation]
"""What a decision allocates, by claim name inside the pod; under ``EXTENDED_RESOURCES`` for those."""


@dataclass(frozen=True)
class Use:
    """One allocation in force, and the claim that it belongs to."""

    claim: str
    allocation: ClaimAllocation
    pod: PodKey | None = None
    """The placed pod that gets it in this plan."""


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods whose claims are not allocated or wrongly allocated; devices given out twice."""
    snapshot = world.snapshot
    served = {*snapshot.extras[SERVED], *((GPU,) if any(node.dra_gpus for node in snapshot.nodes) else ())}
    concerned = any(spec.claims or any(spec.requests[d] for d in served) for spec in world.placed_specs)
    if not concerned:
        details = (decision.details for decision in world.placed.values() if decision.details)
        concerned = any(not _ALLOCATING.isdisjoint(each) for each in details)
    if not concerned or not snapshot.policy.plugin("dynamicresources"):
        return
    catalog = catalog_of(snapshot)
    written, sharers = dict[PodKey, Written](), _sharers(world)
    for key in sorted(world.placed):
        try:
            written[key] = _written(world.placed[key].details)
        except UNREADABLE as problem:
            written[key] = {}
            words = f"pod {key}: what is allocated in its details cannot be read: {problem!r}"
            yield Violation("claims", words, pods=(key,))
        for words in _pod(world, catalog, world.pod(key), written[key], sharers):
            yield Violation("claims", words, pods=(key,))
    for now in (True, False):
        yield from _users(world, catalog, sharers, now=now)
        uses = list(_in_force(world, catalog, written, now=now))
        yield from _one_each(world, catalog, written, sharers, now=now)
        yield from _once(catalog, uses, "now" if now else "in the end")
        yield from _plugged(world, catalog, now=now)


def _pod(
    world: PlannedCluster, catalog: Catalog, pod: Pod, written: Written, sharers: Sharers
) -> Iterator[str]:
    decision, refs = world.placed[pod.key], refs_of(world.snapshot, pod)
    for name in sorted(written.keys() - {EXTENDED_RESOURCES, *(ref.name for ref in refs)}):
        yield f"pod {pod.key} on node {decision.node}: it has no claim {name!r} to allocate"
    for ref in refs:
        claim = catalog.claims.get((pod.key.namespace, ref.claim))
        where = f"pod {pod.key} on node {decision.node}: claim {ref.claim or ref.template}"
        if claim is None:
            yield f"{where} does not exist"
            continue
        group = world.group_of(pod)
        if claim.deleted:
            yield f"{where} is being deleted"
        if ref.template and claim.owner_uid != pod.uid:
            yield f"{where} belongs to another pod"
        if group is not None and not ref.template and _gpus(claim) and claim.queue != group.queue:
            yield f"{where} is a shared GPU claim of queue {claim.queue}, the pod's queue is {group.queue}"
        allocation = written.get(ref.name)
        if allocation is None:
            yield f"{where} gets no allocation"
            continue
        fault = _elsewhere(world, catalog, allocation, decision.node)
        if fault:
            yield f"{where}: {fault}"
        if claim.allocation is None or _devices(claim.allocation) != _devices(allocation):
            # A request for all devices depends on the node that the claim is allocated for: the node of one
            # user.
            faults = list(_contents(world, catalog, claim.requests, allocation, decision.node))
            nodes = {world.placed[key].node for key in sharers[claim.key]} if faults else ()
            if all(any(_contents(world, catalog, claim.requests, allocation, node)) for node in nodes):
                yield from (f"{where}: {text}" for text in faults)
            yield from (f"{where}: {text}" for text in _constrained(catalog, claim, allocation))
            yield from (f"{where}: {text}" for text in _anywhere(catalog, allocation))
            yield from (
                f"{where}: {text}" for text in _configured(catalog, claim.requests, claim.config, allocation)
            )
    yield from _extended(world, catalog, pod, written.get(EXTENDED_RESOURCES))


def _extended(
    world: PlannedCluster, catalog: Catalog, pod: Pod, allocation: ClaimAllocation | None
) -> Iterator[str]:
    """Whether a pod gets the devices of each extended resource that DRA serves to it on its node, and no
    others.
    """
    decision, asked = world.placed[pod.key], _backed(world, catalog, pod, world.placed[pod.key].node)
    where = f"pod {pod.key} on node {decision.node}: extended resources"
    if allocation is None:
        if asked:
            yield f"{where}: it gets no devices for {', '.join(sorted(asked))}"
        return
    details = decision.details["extendedResourceClaimAllocation"]
    try:
        names = {
            text_of(row["resourceName"]): text_of(row["requestName"])
            for row in details.get("containerMappings") or ()
        }
        made = [_requested(row) for row in details.get("deviceRequests") or ()]
    except UNREADABLE as problem:
        yield f"{where}: the names of their requests cannot be read: {problem!r}"
        return
    if names.keys() != asked.keys() or len(set(names.values())) < len(names):
        yield f"{where}: requests are for {sorted(names)}, the pod needs {sorted(asked)}"
        return
    wanted = [Wanted(names[name], each.name, count=count) for name, (each, count) in asked.items()]
    if sorted(made) != sorted((one.name, one.device_class, one.count) for one in wanted):
        yield f"{where}: the claim that is made for them asks for {made}"
    fault = _elsewhere(world, catalog, allocation, decision.node)
    contents = _contents(world, catalog, [(one,) for one in wanted], allocation, decision.node)
    more = _configured(catalog, [(one,) for one in wanted], (), allocation)
    faults = [fault] if fault else [*contents, *_anywhere(catalog, allocation), *more]
    yield from (f"{where}: {text}" for text in faults)


def _requested(row: Mapping[str, Any]) -> tuple[str, str, int]:
    """Name, class and number of a request for so many devices. Raises one of ``UNREADABLE``."""
    exactly = row["exactly"]
    if exactly.get("allocationMode", EXACT) != EXACT:
        raise ValueError("no request for a number of devices")
    return text_of(row["name"]), text_of(exactly["deviceClassName"]), int(exactly.get("count", 1))


def _backed(
    world: PlannedCluster, catalog: Catalog, pod: Pod, node: str
) -> dict[str, tuple[DeviceClass, int]]:
    """Class and number of the devices that serve the pod's extended resources on a node, by resource.

    GPUs are one dimension whatever their resource is called: devices serve them where no device plugin does.
    """
    classes, found, spec = catalog.extended(), world.node(node), pod.spec
    asked = dict[str, tuple[DeviceClass, int]]()
    served = world.snapshot.extras[SERVED]
    for d, name in enumerate(world.snapshot.dimensions):
        if d != GPU and name in classes and spec.requests[d] > 0 and node in served.get(d, ()):
            asked[name] = (classes[name], spec.requests[d] // MILLI)
    gpus = sorted(one.extended_resource for one in classes.values() if one.extended_resource.endswith("gpu"))
    devices_alone = 0 < found.dra_gpus >= found.allocatable[GPU] // MILLI
    if gpus and devices_alone and spec.gpu.kind is GpuKind.REGULAR and spec.gpu.devices:
        asked[gpus[0]] = (classes[gpus[0]], spec.gpu.devices)
    return asked


def _plugged(world: PlannedCluster, catalog: Catalog, *, now: bool) -> Iterator[Violation]:
    """Pods that ask for whole GPUs and get no devices for them fit into the node's GPUs that are not
    devices."""
    for name in sorted(world.bound_nodes if now else world.target_nodes):
        node, plugged = world.node(name), 0
        placed: list[PodKey] = []
        for resident in (world.now(name) if now else world.end(name)) if node.dra_gpus else ():
            pod = resident.pod
            whole = pod.spec.gpu.kind is GpuKind.REGULAR and not pod.reservation
            if whole and pod.spec.gpu.devices and not _backed(world, catalog, pod, name):
                plugged += pod.spec.gpu.devices
                placed += [pod.key] if resident.placed else []
        most = node.allocatable[GPU] // MILLI - node.dra_gpus
        if placed and plugged > most:
            words = f"node {name} has {most} GPUs that are not devices, {plugged} are asked for"
            yield Violation("claims", words, pods=tuple(placed))


def _gpus(claim: Claim) -> bool:
    """Whether queues count GPUs for the claim; a request with alternatives counts for none."""
    wanted = [ways[0] for ways in claim.requests if len(ways) == 1 and "/" not in ways[0].name]
    return any("gpu" in one.device_class.lower() and (one.mode == ALL or one.count) for one in wanted)


def _elsewhere(world: PlannedCluster, catalog: Catalog, allocation: ClaimAllocation, node: str) -> str:
    index = world.snapshot.node_index[node]
    if not reaches(allocation.nodes, world.node(node)):
        return f"its allocation is not for node {node}"
    for device in _devices(allocation):
        found = catalog.index.get(device)
        if found is not None and not catalog.reaches(found, index):
            return f"device {'/'.join(device)} is not within reach of node {node}"
    return ""


def _configured(
    catalog: Catalog,
    requests: Sequence[Sequence[Wanted]],
    config: Sequence[Mapping[str, Any]],
    allocation: ClaimAllocation,
) -> Iterator[str]:
    """Whether drivers get the configuration that classes and claim state for the served requests."""
    served = {result.request for result in allocation.results}
    wanted = [one for alternatives in requests for one in alternatives if one.name in served]
    due = [
        {**row, "source": "FromClass", "requests": {one.name}}
        for one in wanted
        if one.device_class in catalog.classes
        for row in catalog.classes[one.device_class].config
    ]
    for row in config:
        named = row.get("requests") or ()
        of = {name for name in served if name in named or name.partition("/")[0] in named}
        due += [{**row, "source": "FromClaim", "requests": of}] if of or not named else []
    told = (allocation.written.get("devices") or {}).get("config") or ()
    given = [{**row, "requests": set(row.get("requests") or ())} for row in told]
    if len(given) != len(due) or any(given.count(row) != due.count(row) for row in due):
        yield "drivers get another configuration than classes and claim state"


def _anywhere(catalog: Catalog, allocation: ClaimAllocation) -> Iterator[str]:
    """Devices that some nodes cannot use although the allocation is for all nodes: a later pod might use it
    there."""
    for device in _devices(allocation) if allocation.nodes is None else ():
        found = catalog.index.get(device)
        if found is not None and not (found in catalog.reach and catalog.reach[found].all()):
            yield f"its allocation is for all nodes, device {'/'.join(device)} is not"


def _contents(
    world: PlannedCluster,
    catalog: Catalog,
    requests: Sequence[Sequence[Wanted]],
    allocation: ClaimAllocation,
    node: str,
) -> Iterator[str]:
    """Whether a fresh allocation satisfies every request, and nothing else."""
    by_request: dict[str, list[AllocatedDevice]] = {}
    for result in allocation.results:
        by_request.setdefault(result.request, []).append(result)
        if result.device not in catalog.index:
            yield f"device {'/'.join(result.device)} does not exist"
            return
    shares = [
        catalog.devices[catalog.index[one.device]].view.shareable and not one.admin
        for one in allocation.results
    ]
    rows = allocation.written["devices"]["results"] if shares else ()
    ids = [str(row["shareID"]) if row.get("shareID") else "" for row in rows]
    if list(map(bool, ids)) != shares or len(set(ids) - {""}) < sum(shares):
        yield "not every share of a device has an id of its own, and nothing else one"
    if len(allocation.results) > MAX_DEVICES:
        yield f"it gets {len(allocation.results)} devices, at most {MAX_DEVICES} are allowed"
    for name in by_request.keys() - {wanted.name for alternatives in requests for wanted in alternatives}:
        yield f"devices are given to request {name}, which it does not make"
    for alternatives in requests:
        chosen = [wanted for wanted in alternatives if wanted.name in by_request]
        if len(chosen) != 1:
            yield f"request {alternatives[0].name} is served {len(chosen)} times"
            continue
        wanted = chosen[0]
        given = by_request[wanted.name]
        if not all(_fits(catalog, wanted, result.device) for result in given):
            yield f"request {wanted.name} gets devices that do not satisfy it"
        if not all(_as_asked(catalog, wanted, result) for result in given):
            yield f"request {wanted.name} gets another access or other amounts than it asks for"
        need = wanted.count
        if wanted.mode == ALL:
            within = (catalog.devices[i].id for i in catalog.reachable(world.snapshot.node_index[node]))
            need = sum(_matches(catalog, wanted, device) for device in within)
        devices = {result.device for result in given}
        if len(devices) < len(given):
            yield f"request {wanted.name} gets a device twice"
        if len(devices) != need:
            yield f"request {wanted.name} gets {len(devices)} devices, wants {need}"


def _constrained(catalog: Catalog, claim: Claim, allocation: ClaimAllocation) -> Iterator[str]:
    """Constraints that the devices of a fresh allocation do not keep."""
    for constraint in claim.constraints:
        names = constraint.requests
        values = [
            _said_to_be(catalog.devices[catalog.index[result.device]].view, constraint.attribute)
            for result in allocation.results
            if result.device in catalog.index
            if not names or result.request in names or result.request.split("/")[0] in names
        ]
        wrong = len(set(values)) < len(values) if constraint.distinct else len(set(values)) > 1
        if wrong or None in values:
            yield f"devices do not keep the constraint on {'/'.join(constraint.attribute)}"


def _said_to_be(view: DeviceView, name: tuple[str, str]) -> tuple[str, object] | None:
    """An attribute of a device; a version as it is written."""
    kind, value = dict(view.attributes).get(name, ("", None))
    return (kind, value.written if isinstance(value, Version) else value) if kind else None


def _as_asked(catalog: Catalog, wanted: Wanted, result: AllocatedDevice) -> bool:
    """Whether a result has the access that its request asks for. Of a device that claims share it must take
    the requested amount, rounded up as the device's policy says."""
    found = catalog.devices[catalog.index[result.device]]
    if result.admin != wanted.admin:
        return False
    if wanted.admin or not found.view.shareable:
        return True
    asked = {capacity_of(found, name): amount for name, amount in wanted.capacity}
    taken = {capacity_of(found, name): amount for name, amount in result.consumed}
    return taken == {
        name: _taken(total, found.policies.get(name), asked.get(name)) for name, total in found.view.capacity
    }


def _taken(total: Fraction, policy: SharingPolicy | None, asked: Fraction | None) -> Fraction | None:
    """What a request takes of a capacity: the default if it asks for none, else the least allowed amount that
    is enough. None: no allowed amount is enough."""
    if asked is None:
        return total if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.values:
        return min((value for value in policy.values if value >= asked), default=None)
    if policy.minimum is None:
        return asked
    steps = -(-max(asked - policy.minimum, Fraction(0)) // policy.step) if policy.step else None
    least = max(asked, policy.minimum) if steps is None else policy.minimum + steps * (policy.step or 0)
    return least if policy.maximum is None or least <= policy.maximum else None


def _fits(catalog: Catalog, wanted: Wanted, device: DeviceId) -> bool:
    """Whether a device may serve the request: the request selects it and tolerates its taints."""
    return _matches(catalog, wanted, device) and all(
        any(
            t.effect in ("", taint.effect)
            and (t.key == taint.key or (t.key == "" and t.operator == "Exists"))
            and (t.operator == "Exists" or t.value == taint.value)
            for t in wanted.tolerations
        )
        for taint in catalog.devices[catalog.index[device]].taints
    )


def _matches(catalog: Catalog, wanted: Wanted, device: DeviceId) -> bool:
    found = catalog.devices[catalog.index[device]]
    if wanted.device_class not in catalog.classes:
        return False
    expressions = (*catalog.classes[wanted.device_class].selectors, *wanted.selectors)
    capacity = dict(found.view.capacity)
    return all(catalog.judge.matches(each, found.view) for each in expressions) and all(
        capacity.get(capacity_of(found, name), Fraction(-1)) >= amount for name, amount in wanted.capacity
    )


def _written(details: Mapping[str, Any]) -> Written:
    """What a decision allocates. Raises one of ``UNREADABLE``."""
    rows = details.get("resourceClaimAllocations") or ()
    found = {text_of(each["name"]): _said(each["allocation"]) for each in rows}
    if len(found) < len(rows):
        raise ValueError("one claim has two allocations")
    extended = details.get("extendedResourceClaimAllocation")
    return {**found, EXTENDED_RESOURCES: _said(extended["allocation"])} if extended else found


def _said(document: Mapping[str, Any]) -> ClaimAllocation:
    """One allocation, read from the document that the binder gets."""
    terms = (document.get("nodeSelector") or {}).get("nodeSelectorTerms")
    return ClaimAllocation(
        results=tuple(
            AllocatedDevice(
                DeviceId(*(text_of(row[name]) for name in DeviceId._fields)),
                text_of(row["request"]),
                bool(row.get("adminAccess")),
                tuple((name, exact(str(text))) for name, text in (row.get("consumedCapacity") or {}).items()),
            )
            for row in (document.get("devices") or {}).get("results") or ()
        ),
        nodes=None if terms is None else tuple(_term(term) for term in terms),
        written=document,
    )


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            text_of(need["key"]),
            text_of(need["operator"]),
            tuple(map(text_of, need.get("values") or ())),
            kind == "matchFields",
        )
        for kind in ("matchExpressions", "matchFields")
        for need in term.get(kind) or ()
    )


def _devices(allocation: ClaimAllocation) -> list[DeviceId]:
    return [result.device for result in allocation.results]


def _sharers(world: PlannedCluster) -> Sharers:
    found: dict[ClaimName, list[PodKey]] = {}
    for pod, _ in world.arrivals:
        for claim in world.start.claims_of(pod):
            found.setdefault(claim, []).append(pod.key)
    return found


def _gone(world: PlannedCluster, pod: Pod) -> bool:
    """Whether the pod's old place is empty in the end."""
    ended = (PodStatus.RELEASING, PodStatus.SUCCEEDED, PodStatus.FAILED)
    return pod.status in ended or pod.key in world.evictions


def _old_users(world: PlannedCluster, claim: Claim, *, now: bool) -> set[str]:
    """UIDs that the claim is reserved for before the placements of this plan."""
    by_uid, held = world.start.by_uid, world.start.users_of.get(claim.key, set())
    users = claim.reserved | claim.gone | held
    return {uid for uid in users if now or uid not in by_uid or not _gone(world, by_uid[uid])}


def _users(world: PlannedCluster, catalog: Catalog, sharers: Sharers, *, now: bool) -> Iterator[Violation]:
    there = world.binds if now else world.placed
    for name, pods in sharers.items():
        added = {world.pod(key).uid for key in pods if key in there}
        if added and name in catalog.claims:
            users = len(_old_users(world, catalog.claims[name], now=now) | added)
            if users > MAX_USERS:
                words = f"claim {'/'.join(name)} has {users} users, at most {MAX_USERS} are allowed"
                yield Violation("claims", words, pods=tuple(pods))


def _lasts(world: PlannedCluster, claim: Claim, *, now: bool) -> bool:
    """Whether the claim keeps the allocation that it had before this plan; it does not once all its users
    have left."""
    before, users = (_old_users(world, claim, now=when) for when in (True, now))
    return not before or bool(users if now else users - claim.gone)


def _one_each(
    world: PlannedCluster,
    catalog: Catalog,
    written: Mapping[PodKey, Written],
    sharers: Sharers,
    *,
    now: bool,
) -> Iterator[Violation]:
    """Claims whose users get different devices, or other devices than the claim has."""
    given: dict[ClaimName, list[ClaimAllocation]] = {}
    for pod_key in sorted(world.binds if now else world.placed):
        for ref in refs_of(world.snapshot, world.pod(pod_key)):
            if ref.name in written[pod_key]:
                given.setdefault((pod_key.namespace, ref.claim), []).append(written[pod_key][ref.name])
    for key in sorted(given.keys() & catalog.claims.keys()):
        claim = catalog.claims[key]
        standing = claim.allocation or world.start.promised.get(key)
        has = [standing] if standing and _lasts(world, claim, now=now) else []
        if len({frozenset(_devices(each)) for each in (*has, *given[key])}) > 1:
            words = f"claim {'/'.join(key)} is allocated in two ways {'now' if now else 'in the end'}"
            yield Violation("claims", words, pods=tuple(sharers[key]))


def _in_force(
    world: PlannedCluster, catalog: Catalog, written: Mapping[PodKey, Written], *, now: bool
) -> Iterator[Use]:
    """Every allocation in force, each claim once per set of devices."""
    seen: set[tuple[ClaimName, tuple[DeviceId, ...]]] = set()

    def fresh(key: ClaimName, allocation: ClaimAllocation) -> bool:
        identity = (key, tuple(sorted(_devices(allocation))))
        known = identity in seen
        seen.add(identity)
        return not known

    for key, claim in catalog.claims.items():
        standing = claim.allocation or world.start.promised.get(key)
        if standing and _lasts(world, claim, now=now) and fresh(key, standing):
            yield Use("/".join(key), standing)
    reserved: dict[str, set[ClaimName]] = {}
    for key, claim in catalog.claims.items():
        for uid in claim.reserved:
            reserved.setdefault(uid, set()).add(key)
    for pod in world.snapshot.pods:
        standing = pod.claim_allocations.get(EXTENDED_RESOURCES)
        if not standing or pod.node is None or (not now and _gone(world, pod)):
            continue
        # Once the claim itself exists, its own allocation counts.
        if reserved.get(pod.uid, set()) <= world.start.claims_of(pod):
            yield Use(f"extended resources of {pod.key}", standing)
    for pod_key in sorted(world.binds if now else world.placed):
        given = written[pod_key]
        for ref in refs_of(world.snapshot, world.pod(pod_key)):
            key = (pod_key.namespace, ref.claim)
            if ref.name in given and fresh(key, given[ref.name]):
                yield Use("/".join(key), given[ref.name], pod_key)
        if EXTENDED_RESOURCES in given:
            yield Use(f"extended resources of {pod_key}", given[EXTENDED_RESOURCES], pod_key)


def _once(catalog: Catalog, uses: list[Use], when: str) -> Iterator[Violation]:
    """No device, counter or capacity is given out beyond what there is."""
    new = {use.claim: use.pod for use in uses if use.pod is not None}

    def exceeded(words: str, claims: Iterable[str]) -> Violation:
        return Violation(
            "claims", words, pods=tuple(new[claim] for claim in sorted(new.keys() & set(claims)))
        )

    holders: dict[DeviceId, list[str]] = {}
    taken: dict[tuple[DeviceId, tuple[str, str]], Fraction] = {}
    for use in uses:
        for result in use.allocation.results:
            device = result.device
            if result.admin or device not in catalog.index:
                continue
            holders.setdefault(device, []).append(use.claim)
            found = catalog.devices[catalog.index[device]]
            asked = {capacity_of(found, name): amount for name, amount in result.consumed}
            for name, amount in (asked or dict(found.view.capacity)).items():
                taken[device, name] = taken.get((device, name), Fraction(0)) + amount
    for device, claims in holders.items():
        found = catalog.devices[catalog.index[device]]
        if found.view.shareable:
            for name, total in found.view.capacity:
                if taken.get((device, name), Fraction(0)) > total and new.keys() & set(claims):
                    words = f"capacity {name[1]} of device {'/'.join(device)} is exceeded {when}"
                    yield exceeded(words, claims)
        elif len(claims) > 1 and new.keys() & set(claims):
            words = f"device {'/'.join(device)} is given to {', '.join(sorted(claims))} {when}"
            yield exceeded(words, claims)
    drawn: dict[Counter, Fraction] = {}
    for device in holders:
        for counter, amount in catalog.devices[catalog.index[device]].consumes:
            drawn[counter] = drawn.get(counter, Fraction(0)) + amount
    fresh = {device for device, claims in holders.items() if new.keys() & set(claims)}
    touched = {c for device in fresh for c, _ in catalog.devices[catalog.index[device]].consumes}
    for counter in sorted(touched):
        if drawn[counter] > catalog.counters.get(counter, Fraction(0)):
            place = f"{counter.counter_set}/{counter.counter} of pool {counter.pool}"
            drawing = (d for d in fresh if counter in dict(catalog.devices[catalog.index[d]].consumes))
            claims = [claim for device in drawing for claim in holders[device]]
            yield exceeded(f"counter {place} is exceeded {when}", claims)
