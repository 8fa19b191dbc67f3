"""The DRA objects as records, whichever API version wrote them (v1, v1beta2, v1beta1).

v1beta1 keeps a request's fields beside its name and a device's fields under ``basic``; the newer
versions have ``exactly`` and no ``basic``. Nothing else differs for a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kai_cp_models.quantity import exact, version
from kai_cp_models.rules.stateful.dra.cel import DeviceView, Value
from kai_cp_models.rules.stateful.raw import (
    Malformed,
    Raw,
    collect_named,
    flag,
    mapping,
    names,
    objects,
    selector,
    strings,
    whole,
    word,
)
from kai_cp_models.snapshot import SetAside, Snapshot, Taint, Toleration

ALL: Final = "All"
EXACT: Final = "ExactCount"
REFUSING: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep claims off a device; others do nothing."""
MOST: Final = 2**31
"""Largest count that is read."""


class DeviceId(NamedTuple):
    """Identity of a device."""

    driver: str
    pool: str
    device: str


class Counter(NamedTuple):
    """One shared counter of a pool (partitionable devices)."""

    driver: str
    pool: str
    counter_set: str
    counter: str


class SharingPolicy(NamedTuple):
    """How much of a shareable device's capacity one allocation takes."""

    default: Fraction | None
    values: tuple[Fraction, ...]
    """Allowed amounts; empty: no list."""
    minimum: Fraction | None
    maximum: Fraction | None
    step: Fraction | None


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a pool: what CEL sees, what it draws from counters, and where it can be used.

    ``node``: name of its node; None with ``selector`` for devices that several nodes reach; None
    without one for devices that every node reaches.
    """

    id: DeviceId
    view: DeviceView
    consumes: tuple[tuple[Counter, Fraction], ...]
    taints: tuple[Taint, ...]
    policies: Mapping[tuple[str, str], SharingPolicy]
    node: str | None
    selector: Raw | None
    binds_to_node: bool


@dataclass(frozen=True, slots=True)
class Slices:
    """All usable devices, in the order of driver, pool, slice and place in it, and the counters."""

    devices: tuple[Device, ...]
    counters: Mapping[Counter, Fraction]


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass."""

    name: str
    selectors: tuple[str, ...]
    config: tuple[Raw, ...]
    extended_resource: str
    created: str


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: one taint on all devices that it means. None and "": any.

    ``device_class`` and ``selectors`` exist in v1alpha3 up to Kubernetes 1.34.
    """

    name: str
    taint: Taint
    driver: str | None
    pool: str | None
    device: str | None
    device_class: str
    selectors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One way to satisfy a request: so many devices of a class."""

    name: str
    """As results name it: the request's name, or ``request/subrequest``."""
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT
    count: int = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, Fraction], ...] = ()


class Constraint(NamedTuple):
    """All devices of ``requests`` (empty: of all) agree, or all differ, in one attribute."""

    requests: tuple[str, ...]
    attribute: tuple[str, str]
    distinct: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim. ``requests``: per request its alternatives, the preferred one first."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    queue: str | None
    """Value of the queue label."""
    requests: tuple[tuple[Wanted, ...], ...]
    constraints: tuple[Constraint, ...]
    config: tuple[Raw, ...]
    allocation: Raw | None
    reserved: frozenset[str]
    """UIDs of the pods that use it."""
    deleted: bool

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)


def device_class(item: Raw) -> DeviceClass:
    """Parse a DeviceClass."""
    spec, meta = mapping(item, "spec"), mapping(item, "metadata")
    return DeviceClass(
        name=word(meta, "name"),
        selectors=_selectors(spec),
        config=objects(spec, "config"),
        extended_resource=word(spec, "extendedResourceName", ""),
        created=word(meta, "creationTimestamp", ""),
    )


def taint_rule(item: Raw) -> TaintRule:
    """Parse a DeviceTaintRule; without a selector it means no device."""
    spec = mapping(item, "spec")
    chosen, taint = mapping(spec, "deviceSelector"), mapping(spec, "taint")

    def part(field: str) -> str | None:
        if spec.get("deviceSelector") is None:
            return ""  # no device has an empty name
        return word(chosen, field, "") or None

    return TaintRule(
        name=word(mapping(item, "metadata"), "name"),
        taint=Taint(word(taint, "key"), word(taint, "value", ""), word(taint, "effect", "")),
        driver=part("driver"),
        pool=part("pool"),
        device=part("device"),
        device_class=word(chosen, "deviceClassName", ""),
        selectors=_selectors(chosen),
    )


def claim(queue_label: str) -> Callable[[Raw], Claim]:
    """The parser of ResourceClaims; ``queue_label`` is the key of the queue label (2.5)."""

    def parse(item: Raw) -> Claim:
        meta, status = mapping(item, "metadata"), mapping(item, "status")
        devices = mapping(mapping(item, "spec"), "devices")
        owners = [owner for owner in objects(meta, "ownerReferences") if owner.get("controller")]
        requests = objects(devices, "requests")
        allocation = mapping(status, "allocation")
        check_allocation(allocation)
        return Claim(
            namespace=word(meta, "namespace", ""),
            name=word(meta, "name"),
            uid=word(meta, "uid", ""),
            owner_uid=word(owners[0], "uid", "") if owners else "",
            queue=strings(meta, "labels").get(queue_label),
            requests=tuple(_alternatives(request) for request in requests),
            constraints=tuple(_constraint(each) for each in objects(devices, "constraints")),
            config=objects(devices, "config"),
            allocation=allocation or None,
            reserved=frozenset(word(user, "uid", "") for user in objects(status, "reservedFor")),
            deleted=bool(meta.get("deletionTimestamp")),
        )

    return parse


def check_allocation(allocation: Raw) -> None:
    """Raise Malformed if an allocation cannot be read."""
    for result in objects(mapping(allocation, "devices"), "results"):
        for field in ("driver", "pool", "device"):
            word(result, field)
        for amount in mapping(result, "consumedCapacity").values():
            _quantity(amount, "consumedCapacity")
    selector(allocation, "nodeSelector")


def _alternatives(request: Raw) -> tuple[Wanted, ...]:
    name = word(request, "name")
    alternatives = objects(request, "firstAvailable")
    if alternatives:
        return tuple(_wanted(sub, f"{name}/{word(sub, 'name')}") for sub in alternatives)
    return (_wanted(mapping(request, "exactly") or request, name),)


def _wanted(fields: Raw, name: str) -> Wanted:
    mode = word(fields, "allocationMode", EXACT)
    if mode not in (ALL, EXACT):
        raise Malformed(f"request {name}: allocation mode {mode!r} is unknown")
    count = whole(fields, "count", 1)
    if not 1 <= count <= MOST:
        raise Malformed(f"request {name}: count {count} is not between 1 and {MOST}")
    amounts = mapping(mapping(fields, "capacity"), "requests")
    return Wanted(
        name=name,
        device_class=word(fields, "deviceClassName"),
        selectors=_selectors(fields),
        mode=mode,
        count=count,
        admin=flag(fields, "adminAccess"),
        tolerations=tuple(
            Toleration(
                key=word(t, "key", ""),
                operator=word(t, "operator", "Equal"),
                value=word(t, "value", ""),
                effect=word(t, "effect", ""),
            )
            for t in objects(fields, "tolerations")
        ),
        capacity=tuple(sorted((key, _quantity(value, f"capacity.{key}")) for key, value in amounts.items())),
    )


def _selectors(fields: Raw) -> tuple[str, ...]:
    return tuple(word(mapping(s, "cel"), "expression") for s in objects(fields, "selectors"))


def _constraint(fields: Raw) -> Constraint:
    same, different = word(fields, "matchAttribute", ""), word(fields, "distinctAttribute", "")
    if not same and not different:
        raise Malformed("constraint is neither matchAttribute nor distinctAttribute")
    domain, _, name = (same or different).rpartition("/")
    return Constraint(names(fields, "requests"), (domain, name), not same)


def slices(snapshot: Snapshot, problems: list[SetAside]) -> Slices:
    """The devices of the newest generation of every complete pool whose node exists."""
    parsed = list(
        collect_named(snapshot, "resourceSlices", "ResourceSlice", lambda item: (item, _pool(item)), problems)
    )
    newest: dict[tuple[str, str], int] = {}
    for _, (_, (pool, generation, _)) in parsed:
        newest[pool] = max(generation, newest.get(pool, generation))
    current = [
        (pool, key[1], item, size)
        for key, (item, (pool, generation, size)) in parsed
        if generation == newest[pool]
    ]
    present: dict[tuple[str, str], int] = {}
    for pool, *_ in current:
        present[pool] = present.get(pool, 0) + 1
    devices: list[Device] = []
    counters: dict[Counter, Fraction] = {}
    reported = set()
    for pool, name, item, size in sorted(current, key=lambda found: found[:2]):
        if present[pool] < size:
            if pool not in reported:
                reported.add(pool)
                reason = f"{present[pool]} of its {size} slices are known; its devices are not used"
                problems.append(SetAside(f"ResourcePool {pool[0]}/{pool[1]}", reason))
            continue
        try:
            spec = mapping(item, "spec")
            node = word(spec, "nodeName", "")
            if node and node not in snapshot.node_index:
                raise Malformed(f"node {node} does not exist")
            drawn, found = _counters(spec, pool), list(_devices(spec, pool))
        except ValueError as error:
            problems.append(SetAside(f"ResourceSlice {name}", str(error)))
        else:
            counters |= drawn
            devices += found
    return Slices(tuple(devices), counters)


def _pool(item: Raw) -> tuple[tuple[str, str], int, int]:
    spec = mapping(item, "spec")
    pool = mapping(spec, "pool")
    place = (word(spec, "driver"), word(pool, "name", "") or word(spec, "nodeName", ""))
    return place, whole(pool, "generation", 0), whole(pool, "resourceSliceCount", 1)


def _counters(spec: Raw, pool: tuple[str, str]) -> dict[Counter, Fraction]:
    return {
        Counter(*pool, word(group, "name"), name): _amount(value, f"sharedCounters.{name}")
        for group in objects(spec, "sharedCounters")
        for name, value in mapping(group, "counters").items()
    }


def _devices(spec: Raw, pool: tuple[str, str]) -> Iterator[Device]:
    per_device = flag(spec, "perDeviceNodeSelection")
    for item in objects(spec, "devices"):
        fields = mapping(item, "basic") or item
        place = fields if per_device else spec
        attributes = {
            _qualified(name, pool[0]): _value(name, value)
            for name, value in mapping(fields, "attributes").items()
        }
        capacity = {_qualified(name, pool[0]): value for name, value in mapping(fields, "capacity").items()}
        shareable = flag(fields, "allowMultipleAllocations")
        yield Device(
            id=DeviceId(*pool, word(item, "name")),
            view=DeviceView(
                driver=pool[0],
                attributes=tuple(sorted(attributes.items(), key=lambda entry: entry[0])),
                capacity=tuple(sorted((n, _amount(v, f"capacity.{n[1]}")) for n, v in capacity.items())),
                shareable=shareable,
            ),
            consumes=tuple(
                (Counter(*pool, word(drawn, "counterSet"), name), _amount(value, f"consumesCounters.{name}"))
                for drawn in objects(fields, "consumesCounters")
                for name, value in mapping(drawn, "counters").items()
            ),
            taints=tuple(
                Taint(word(t, "key"), word(t, "value", ""), word(t, "effect", ""))
                for t in objects(fields, "taints")
                if t.get("effect") in REFUSING
            ),
            policies={name: _policy(value) for name, value in capacity.items()} if shareable else {},
            node=word(place, "nodeName", "") or None,
            selector=selector(place, "nodeSelector"),
            binds_to_node=flag(fields, "bindsToNode"),
        )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and name of an attribute; one without a domain has the driver's."""
    domain, _, plain = name.rpartition("/")
    return (domain or driver, plain)


def _value(name: str, value: Any) -> Value:
    found = value if isinstance(value, Mapping) else {}
    if isinstance(found.get("bool"), bool):
        return ("bool", bool(found["bool"]))
    if isinstance(found.get("int"), int) and not isinstance(found["int"], bool):
        return ("int", int(found["int"]))
    if isinstance(found.get("string"), str):
        return ("string", str(found["string"]))
    if isinstance(found.get("version"), str):
        return ("version", version(found["version"]))
    raise Malformed(f"attributes.{name}: {value!r} has no known type")


def _amount(value: Any, field: str) -> Fraction:
    """The quantity of a capacity or counter: ``{"value": "1Gi"}``, or the text alone."""
    return _quantity(value.get("value") if isinstance(value, Mapping) else value, field)


def _quantity(value: Any, field: str) -> Fraction:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise Malformed(f"{field}: {value!r} is not a quantity")
    try:
        return exact(str(value))
    except ValueError as error:
        raise Malformed(f"{field}: {error}") from None


def _policy(value: Any) -> SharingPolicy:
    fields = mapping(value, "requestPolicy") if isinstance(value, Mapping) else {}
    span = mapping(fields, "validRange")

    def amount(fields: Raw, name: str) -> Fraction | None:
        return _quantity(fields[name], name) if fields.get(name) is not None else None

    values = fields.get("validValues") or ()
    if not isinstance(values, list | tuple):
        raise Malformed(f"validValues: {values!r} is not a list")
    return SharingPolicy(
        default=amount(fields, "default"),
        values=tuple(sorted(_quantity(each, "validValues") for each in values)),
        minimum=amount(span, "min"),
        maximum=amount(span, "max"),
        step=amount(span, "step"),
    )
