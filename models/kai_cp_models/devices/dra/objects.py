"""The DRA objects as records, whichever API version wrote them (v1, v1beta2, v1beta1).

v1beta1 keeps a request's fields beside its name and a device's fields under ``basic``; the newer
versions have ``exactly`` and no ``basic``. Nothing else differs for a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeVar

from kai_cp_models.devices.dra.cel import Value, View
from kai_cp_models.devices.quantity import quantity, version
from kai_cp_models.snapshot import SetAside, Snapshot, Taint, Toleration

ALL: Final = "All"
EXACT: Final = "ExactCount"
Raw = Mapping[str, Any]
T = TypeVar("T")


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


class Policy(NamedTuple):
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
    view: View
    consumes: tuple[tuple[Counter, Fraction], ...]
    taints: tuple[Taint, ...]
    policies: Mapping[tuple[str, str], Policy]
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
    prioritized: bool
    """Some request has ``firstAvailable`` (2.5: such requests are not counted as GPUs)."""
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


def collect(
    snapshot: Snapshot, list_name: str, kind: str, parse: Callable[[Raw], T], problems: list[SetAside]
) -> list[T]:
    """Parse a raw list in the order of names; what cannot be parsed is added to ``problems``."""
    found = []
    items = snapshot.extras.get("raw", {}).get(list_name) or ()
    for item in sorted(items, key=_sort_key):
        try:
            found.append(parse(item))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            name = "/".join(part for part in _sort_key(item) if part)
            problems.append(SetAside(f"{kind} {name}", str(error) or type(error).__name__))
    return found


def _sort_key(item: Any) -> tuple[str, str]:
    meta = item.get("metadata") if isinstance(item, Mapping) else None
    meta = meta if isinstance(meta, Mapping) else {}
    return (str(meta.get("namespace") or ""), str(meta.get("name") or ""))


def device_class(item: Raw) -> DeviceClass:
    """Parse a DeviceClass."""
    spec = item.get("spec") or {}
    return DeviceClass(
        name=item["metadata"]["name"],
        selectors=_selectors(spec),
        config=tuple(spec.get("config") or ()),
        extended_resource=spec.get("extendedResourceName") or "",
        created=item["metadata"].get("creationTimestamp") or "",
    )


def claim(queue_label: str) -> Callable[[Raw], Claim]:
    """The parser of ResourceClaims; ``queue_label`` is the key of the queue label (2.5)."""

    def parse(item: Raw) -> Claim:
        meta, status = item["metadata"], item.get("status") or {}
        devices = (item.get("spec") or {}).get("devices") or {}
        raw_requests = devices.get("requests") or ()
        owners = [o for o in meta.get("ownerReferences") or () if o.get("controller")]
        return Claim(
            namespace=meta.get("namespace") or "",
            name=meta["name"],
            uid=meta.get("uid") or "",
            owner_uid=owners[0].get("uid") or "" if owners else "",
            queue=(meta.get("labels") or {}).get(queue_label),
            requests=tuple(_alternatives(request) for request in raw_requests),
            prioritized=any(request.get("firstAvailable") for request in raw_requests),
            constraints=tuple(_constraint(c) for c in devices.get("constraints") or ()),
            config=tuple(devices.get("config") or ()),
            allocation=status.get("allocation") or None,
            reserved=frozenset(str(r.get("uid")) for r in status.get("reservedFor") or ()),
            deleted=bool(meta.get("deletionTimestamp")),
        )

    return parse


def _alternatives(request: Raw) -> tuple[Wanted, ...]:
    name = request["name"]
    if request.get("firstAvailable"):
        return tuple(_wanted(sub, f"{name}/{sub['name']}") for sub in request["firstAvailable"])
    return (_wanted(request.get("exactly") or request, name),)


def _wanted(fields: Raw, name: str) -> Wanted:
    if not fields.get("deviceClassName"):
        raise ValueError(f"request {name}: deviceClassName is missing")
    mode = fields.get("allocationMode") or EXACT
    if mode not in (ALL, EXACT):
        raise ValueError(f"request {name}: allocation mode {mode!r} is unknown")
    amounts = ((fields.get("capacity") or {}).get("requests") or {}).items()
    return Wanted(
        name=name,
        device_class=fields["deviceClassName"],
        selectors=_selectors(fields),
        mode=mode,
        count=int(fields.get("count") or 1),
        admin=bool(fields.get("adminAccess")),
        tolerations=tuple(
            Toleration(
                key=t.get("key") or "",
                operator=t.get("operator") or "Equal",
                value=t.get("value") or "",
                effect=t.get("effect") or "",
            )
            for t in fields.get("tolerations") or ()
        ),
        capacity=tuple(sorted((key, quantity(value)) for key, value in amounts)),
    )


def _selectors(fields: Raw) -> tuple[str, ...]:
    return tuple(s["cel"]["expression"] for s in fields.get("selectors") or () if s.get("cel"))


def _constraint(fields: Raw) -> Constraint:
    same, different = fields.get("matchAttribute"), fields.get("distinctAttribute")
    if not same and not different:
        raise ValueError("constraint is neither matchAttribute nor distinctAttribute")
    domain, _, name = str(same or different).rpartition("/")
    return Constraint(tuple(fields.get("requests") or ()), (domain, name), not same)


def slices(snapshot: Snapshot, problems: list[SetAside]) -> Slices:
    """The devices of the newest generation of every complete pool whose node exists."""
    parsed = collect(snapshot, "resourceSlices", "ResourceSlice", lambda item: (item, _pool(item)), problems)
    newest: dict[tuple[str, str], int] = {}
    for _, (pool, generation, _) in parsed:
        newest[pool] = max(generation, newest.get(pool, generation))
    current = [(item, pool, size) for item, (pool, generation, size) in parsed if generation == newest[pool]]
    present: dict[tuple[str, str], int] = {}
    for _, pool, _ in current:
        present[pool] = present.get(pool, 0) + 1
    devices: list[Device] = []
    counters: dict[Counter, Fraction] = {}
    reported = set()
    for item, pool, size in sorted(current, key=lambda found: found[1]):
        if present[pool] < size:
            if pool not in reported:
                reported.add(pool)
                reason = f"{present[pool]} of its {size} slices are known; its devices are not used"
                problems.append(SetAside(f"ResourcePool {pool[0]}/{pool[1]}", reason))
            continue
        name, spec = item["metadata"]["name"], item["spec"]
        if spec.get("nodeName") and spec["nodeName"] not in snapshot.node_index:
            problems.append(SetAside(f"ResourceSlice {name}", f"node {spec['nodeName']} does not exist"))
            continue
        try:
            counters |= _counters(spec, pool)
            devices += _devices(spec, pool)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(SetAside(f"ResourceSlice {name}", str(error) or type(error).__name__))
    return Slices(tuple(devices), counters)


def _pool(item: Raw) -> tuple[tuple[str, str], int, int]:
    spec = item["spec"]
    pool = spec.get("pool") or {}
    place = (spec["driver"], pool.get("name") or spec.get("nodeName") or "")
    return place, int(pool.get("generation") or 0), int(pool.get("resourceSliceCount") or 1)


def _counters(spec: Raw, pool: tuple[str, str]) -> dict[Counter, Fraction]:
    return {
        Counter(*pool, group["name"], name): quantity(_amount(value))
        for group in spec.get("sharedCounters") or ()
        for name, value in (group.get("counters") or {}).items()
    }


def _devices(spec: Raw, pool: tuple[str, str]) -> Iterator[Device]:
    per_device = bool(spec.get("perDeviceNodeSelection"))
    for item in spec.get("devices") or ():
        fields = item.get("basic") or item
        place = fields if per_device else spec
        attributes = {
            _qualified(name, pool[0]): _value(value)
            for name, value in (fields.get("attributes") or {}).items()
        }
        capacity = {_qualified(n, pool[0]): v for n, v in (fields.get("capacity") or {}).items()}
        shareable = bool(fields.get("allowMultipleAllocations"))
        yield Device(
            id=DeviceId(*pool, item["name"]),
            view=View(
                driver=pool[0],
                attributes=tuple(sorted(attributes.items(), key=lambda entry: entry[0])),
                capacity=tuple(sorted((name, quantity(_amount(v))) for name, v in capacity.items())),
                shareable=shareable,
            ),
            consumes=tuple(
                (Counter(*pool, drawn["counterSet"], name), quantity(_amount(value)))
                for drawn in fields.get("consumesCounters") or ()
                for name, value in (drawn.get("counters") or {}).items()
            ),
            taints=tuple(
                Taint(t["key"], t.get("value") or "", t.get("effect") or "")
                for t in fields.get("taints") or ()
                if t.get("effect") in ("NoSchedule", "NoExecute")
            ),
            policies={name: _policy(value) for name, value in capacity.items()} if shareable else {},
            node=place.get("nodeName") or None,
            selector=place.get("nodeSelector") or None,
            binds_to_node=bool(fields.get("bindsToNode")),
        )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and name of an attribute; one without a domain has the driver's."""
    domain, _, plain = name.rpartition("/")
    return (domain or driver, plain)


def _value(value: Raw) -> Value:
    for kind in ("bool", "int", "string", "version"):
        if value.get(kind) is not None:
            return (kind, version(value[kind]) if kind == "version" else value[kind])
    raise ValueError(f"attribute value {dict(value)} has no known type")


def _amount(value: Any) -> object:
    """The quantity of a capacity or counter: ``{"value": "1Gi"}``, or the text alone."""
    return value["value"] if isinstance(value, Mapping) else value


def _policy(value: Any) -> Policy:
    fields: Raw = (value.get("requestPolicy") if isinstance(value, Mapping) else None) or {}
    span = fields.get("validRange") or {}

    def amount(fields: Raw, name: str) -> Fraction | None:
        return quantity(fields[name]) if fields.get(name) is not None else None

    values: Sequence[object] = fields.get("validValues") or ()
    return Policy(
        default=amount(fields, "default"),
        values=tuple(sorted(quantity(v) for v in values)),
        minimum=amount(span, "min"),
        maximum=amount(span, "max"),
        step=amount(span, "step"),
    )
