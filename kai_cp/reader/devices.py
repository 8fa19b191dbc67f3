"""DRA objects (2.5) of every API version: classes, slices, taint rules, claims and allocations.

v1beta1 has a request's fields beside its name and a device's fields under ``basic``; the newer versions
(v1beta2, v1) have ``exactly`` and no ``basic``. A scheduler sees no other difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kai_cp.json_types import Json
from kai_cp.reader.affinity import read_node_terms
from kai_cp.reader.fields import (
    Malformed,
    bool_at,
    entry,
    int_at,
    list_at,
    name_at,
    object_at,
    objects_at,
    path,
    shown,
    strings_at,
    text_at,
    texts_at,
)
from kai_cp.reader.notes import Identity
from kai_cp.reader.quantity import exact_quantity
from kai_cp_models.pods import Toleration
from kai_cp_models.quantity import version
from kai_cp_models.records.devices import (
    ALL,
    EXACT,
    REFUSING,
    AllocatedDevice,
    Claim,
    ClaimAllocation,
    Constraint,
    Counter,
    Device,
    DeviceClass,
    DeviceId,
    DeviceView,
    SharingPolicy,
    TaintRule,
    Value,
    Wanted,
)
from kai_cp_models.snapshot import Taint

_MOST: Final = 2**31
"""The largest count that is accepted."""

HasGone = Callable[[Identity, str], bool]
"""Whether a pod of that name and UID no longer exists or runs."""


def read_device_class(obj: Json, identity: Identity) -> DeviceClass:
    """A DeviceClass."""
    spec = object_at(obj, "spec")
    return DeviceClass(
        name=identity[1],
        selectors=_selectors(spec, "spec"),
        config=tuple(objects_at(spec, "config", "spec")),
        extended_resource=text_at(spec, "extendedResourceName", "spec"),
        created=text_at(object_at(obj, "metadata"), "creationTimestamp", "metadata"),
    )


def read_taint_rule(obj: Json, identity: Identity) -> TaintRule:
    """A DeviceTaintRule; one without a selector selects no device."""
    spec, where = object_at(obj, "spec"), "spec.deviceSelector"
    chosen = object_at(spec, "deviceSelector", "spec")
    any_at_all = spec.get("deviceSelector") is not None

    def part(key: str) -> str | None:
        # No device has an empty name.
        return (text_at(chosen, key, where) or None) if any_at_all else ""

    return TaintRule(
        name=identity[1],
        taint=_taint(object_at(spec, "taint", "spec"), "spec.taint"),
        driver=part("driver"),
        pool=part("pool"),
        device=part("device"),
        device_class=text_at(chosen, "deviceClassName", where),
        selectors=_selectors(chosen, where),
    )


def _taint(row: Json, where: str) -> Taint:
    return Taint(name_at(row, "key", where), text_at(row, "value", where), text_at(row, "effect", where))


def claim_reader(queue_label: str, has_gone: HasGone) -> Callable[[Json, Identity], Claim]:
    """The parser of ResourceClaims; ``queue_label`` is the key of the queue label (2.5)."""

    def gone(row: Json, kind: str, namespace: str) -> bool:
        match row:
            case {"name": str(name), "uid": str(uid)} if name and uid:
                return row.get(kind) in ("pods", "Pod") and has_gone((namespace, name), uid)
        return False

    def read(obj: Json, identity: Identity) -> Claim:
        metadata, status = object_at(obj, "metadata"), object_at(obj, "status")
        devices, where = object_at(object_at(obj, "spec"), "devices", "spec"), "spec.devices"
        owners = [row for row in objects_at(metadata, "ownerReferences", "metadata") if row.get("controller")]
        allocation = object_at(status, "allocation", "status")
        reserved = {text_at(row, "uid", at): row for row, at in _rows(status, "reservedFor", "status")}
        deleted = bool(metadata.get("deletionTimestamp"))
        left = {uid for uid, row in reserved.items() if gone(row, "resource", identity[0])}
        if deleted or (owners and gone(owners[0], "kind", identity[0])):
            left.add(text_at(metadata, "uid", "metadata"))
        return Claim(
            namespace=identity[0],
            name=identity[1],
            uid=text_at(metadata, "uid", "metadata"),
            owner_uid=text_at(owners[0], "uid", "metadata.ownerReferences[]") if owners else None,
            queue=strings_at(metadata, "labels", "metadata").get(queue_label),
            requests=tuple(_alternatives(row, inner) for row, inner in _rows(devices, "requests", where)),
            constraints=tuple(_constraint(row, inner) for row, inner in _rows(devices, "constraints", where)),
            config=tuple(objects_at(devices, "config", where)),
            allocation=read_allocation(allocation, "status.allocation") if allocation else None,
            reserved=frozenset(reserved),
            deleted=deleted,
            gone=frozenset(left),
        )

    return read


def read_allocation(raw: Json, where: str) -> ClaimAllocation:
    """The allocation in a claim's status or in a BindRequest."""
    inside = path(where, "devices")
    return ClaimAllocation(
        results=tuple(
            AllocatedDevice(
                DeviceId(*(name_at(row, key, inner) for key in ("driver", "pool", "device"))),
                text_at(row, "request", inner),
                bool(row.get("adminAccess")),
                tuple(_amounts(object_at(row, "consumedCapacity", inner), f"{inner}.consumedCapacity")),
            )
            for row, inner in _rows(object_at(raw, "devices", where), "results", inside)
        ),
        nodes=read_node_terms(raw, "nodeSelector", where),
        written=raw,
    )


def _rows(holder: Json, key: str, where: str) -> Iterator[tuple[Json, str]]:
    """The objects of a list with their paths."""
    inside = path(where, key)
    return ((row, f"{inside}[{i}]") for i, row in enumerate(objects_at(holder, key, where)))


def _amounts(holder: Json, where: str) -> Iterator[tuple[str, Fraction]]:
    """Quantities by name, each as ``{"value": "1Gi"}`` or as text."""
    for name, value in holder.items():
        yield name, _amount(value, entry(where, name))


def _amount(value: Any, field: str) -> Fraction:
    return exact_quantity(value.get("value") if isinstance(value, dict) else value, field)


def _selectors(holder: Json, where: str) -> tuple[str, ...]:
    """CEL expressions."""
    rows = _rows(holder, "selectors", where)
    return tuple(name_at(object_at(row, "cel", at), "expression", f"{at}.cel") for row, at in rows)


def _alternatives(request: Json, where: str) -> tuple[Wanted, ...]:
    name = name_at(request, "name", where)
    alternatives = list(_rows(request, "firstAvailable", where))
    if alternatives:
        return tuple(
            _wanted(row, f"{name}/{name_at(row, 'name', inner)}", inner) for row, inner in alternatives
        )
    exactly = object_at(request, "exactly", where)
    return (_wanted(exactly, name, f"{where}.exactly") if exactly else _wanted(request, name, where),)


def _wanted(row: Json, name: str, where: str) -> Wanted:
    mode = text_at(row, "allocationMode", where) or EXACT
    if mode not in (ALL, EXACT):
        raise Malformed(f"{where}.allocationMode", f"{shown(mode)} is neither {ALL} nor {EXACT}")
    count = int_at(row, "count", where, bits=64)
    if count is not None and not 1 <= count <= _MOST:
        raise Malformed(f"{where}.count", f"{count} is not between 1 and {_MOST}")
    capacity = object_at(object_at(row, "capacity", where), "requests", f"{where}.capacity")
    return Wanted(
        name=name,
        device_class=name_at(row, "deviceClassName", where),
        selectors=_selectors(row, where),
        mode=mode,
        count=1 if count is None else count,
        admin=bool_at(row, "adminAccess", where),
        tolerations=tuple(
            Toleration(
                key=text_at(each, "key", inner),
                operator=text_at(each, "operator", inner) or "Equal",
                value=text_at(each, "value", inner),
                effect=text_at(each, "effect", inner),
            )
            for each, inner in _rows(row, "tolerations", where)
        ),
        capacity=tuple(
            sorted(
                (key, exact_quantity(value, entry(f"{where}.capacity.requests", key)))
                for key, value in capacity.items()
            )
        ),
    )


def _constraint(row: Json, where: str) -> Constraint:
    same, different = text_at(row, "matchAttribute", where), text_at(row, "distinctAttribute", where)
    if not same and not different:
        raise Malformed(where, "is neither matchAttribute nor distinctAttribute")
    domain, _, name = (same or different).rpartition("/")
    return Constraint(texts_at(row, "requests", where), (domain, name), not same)


Pool = tuple[str, str]
"""Driver and name."""


class PoolPart(NamedTuple):
    """What a slice says about its pool. ``node``: the node whose devices it lists; "": no single one.
    ``size``: how many slices the pool has."""

    pool: Pool
    node: str
    generation: int
    size: int


def read_pool(obj: Json, identity: Identity) -> PoolPart:
    """The part of its pool that a slice describes."""
    spec = object_at(obj, "spec")
    pool, where = object_at(spec, "pool", "spec"), "spec.pool"
    generation = int_at(pool, "generation", where, bits=64)
    size = int_at(pool, "resourceSliceCount", where, bits=64)
    node = text_at(spec, "nodeName", "spec")
    name = text_at(pool, "name", where) or node
    return PoolPart(
        (name_at(spec, "driver", "spec"), name), node, generation or 0, 1 if size is None else size
    )


def newest(parts: Mapping[Identity, PoolPart]) -> list[Identity]:
    """Slices that no newer slice of their pool for the same node replaces, by pool and name. Slices of the
    node after which the pool is named come first, because names of devices mean the devices of that node."""
    generations: dict[tuple[Pool, str], int] = {}
    for pool, node, generation, _ in parts.values():
        generations[pool, node] = max(generation, generations.get((pool, node), generation))
    current = ((at, part) for at, part in parts.items() if part.generation == generations[part[:2]])
    return [at for *_, at in sorted((part.pool, part.node != part.pool[1], at) for at, part in current)]


def incomplete(parts: Mapping[Identity, PoolPart]) -> dict[Identity, str]:
    """Slices whose pool and generation are not complete, and why they are left out."""
    known: dict[tuple[Pool, int], int] = {}
    for pool, _, generation, _ in parts.values():
        known[pool, generation] = known.get((pool, generation), 0) + 1
    return {
        at: f"{present} of its {size} slices are known; its devices are not used"
        for at, (pool, _, generation, size) in parts.items()
        if (present := known[pool, generation]) < size
    }


def read_slice(
    obj: Json, identity: Identity, nodes: Iterable[str]
) -> tuple[dict[Counter, Fraction], list[Device]]:
    """Counters and devices of a slice; ``nodes``: names of the nodes that exist. Raises ``Malformed``."""
    spec = object_at(obj, "spec")
    pool = read_pool(obj, identity).pool
    node = text_at(spec, "nodeName", "spec")
    if node and node not in nodes:
        raise Malformed("spec.nodeName", f"node {node} does not exist")
    counters = {
        Counter(*pool, name_at(group, "name", where), name): amount
        for group, where in _rows(spec, "sharedCounters", "spec")
        for name, amount in _amounts(object_at(group, "counters", where), f"{where}.counters")
    }
    per_device = bool_at(spec, "perDeviceNodeSelection", "spec")
    rows = _rows(spec, "devices", "spec")
    return counters, [_device(row, pool, None if per_device else spec, where) for row, where in rows]


def _device(row: Json, pool: Pool, everywhere: Json | None, where: str) -> Device:
    """A device. ``everywhere``: the slice's spec, if it states the location of all its devices."""
    fields = object_at(row, "basic", where) or row
    place, at = (fields, where) if everywhere is None else (everywhere, "spec")
    attributes = {
        _qualified(name, pool[0]): _value(value, entry(f"{where}.attributes", name))
        for name, value in object_at(fields, "attributes", where).items()
    }
    raw_capacity = object_at(fields, "capacity", where)
    amounts = _amounts(raw_capacity, f"{where}.capacity")
    capacity = {_qualified(name, pool[0]): amount for name, amount in amounts}
    shareable = bool_at(fields, "allowMultipleAllocations", where)
    return Device(
        id=DeviceId(*pool, name_at(row, "name", where)),
        view=DeviceView(
            driver=pool[0],
            attributes=tuple(sorted(attributes.items(), key=lambda item: item[0])),
            capacity=tuple(sorted(capacity.items())),
            shareable=shareable,
        ),
        consumes=tuple(
            (Counter(*pool, name_at(drawn, "counterSet", inner), name), amount)
            for drawn, inner in _rows(fields, "consumesCounters", where)
            for name, amount in _amounts(object_at(drawn, "counters", inner), f"{inner}.counters")
        ),
        taints=tuple(
            _taint(taint, inner)
            for taint, inner in _rows(fields, "taints", where)
            if taint.get("effect") in REFUSING
        ),
        policies={
            _qualified(name, pool[0]): _policy(value, entry(f"{where}.capacity", name))
            for name, value in raw_capacity.items()
            if shareable
        },
        node=text_at(place, "nodeName", at) or None,
        selector=read_node_terms(place, "nodeSelector", at),
        binds_to_node=bool_at(fields, "bindsToNode", where),
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and name of an attribute; the driver's domain is the default."""
    domain, _, plain = name.rpartition("/")
    return (domain or driver, plain)


def _value(value: Any, field: str) -> Value:
    """An attribute: the first of its typed fields that is set."""
    found = value if isinstance(value, dict) else {}
    for kind, is_kind in (("bool", bool), ("int", int), ("string", str)):
        if type(found.get(kind)) is is_kind:
            return (kind, found[kind])
    if isinstance(found.get("version"), str):
        try:
            return ("version", version(found["version"]))
        except ValueError as problem:
            raise Malformed(field, str(problem)) from None
    raise Malformed(field, f"{shown(value)} has no known type")


def _policy(value: Any, where: str) -> SharingPolicy:
    """How much one allocation takes; the whole capacity without a policy."""
    fields = object_at(value, "requestPolicy", where) if isinstance(value, dict) else {}
    inside = f"{where}.requestPolicy"
    span = object_at(fields, "validRange", inside)

    def amount(holder: Json, key: str, at: str) -> Fraction | None:
        return exact_quantity(holder[key], f"{at}.{key}") if holder.get(key) is not None else None

    values = list_at(fields, "validValues", inside)
    return SharingPolicy(
        default=amount(fields, "default", inside),
        values=tuple(sorted(exact_quantity(each, f"{inside}.validValues") for each in values)),
        minimum=amount(span, "min", f"{inside}.validRange"),
        maximum=amount(span, "max", f"{inside}.validRange"),
        step=amount(span, "step", f"{inside}.validRange"),
    )
