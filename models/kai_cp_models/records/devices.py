"""The DRA objects as records, whichever API version wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kai_cp_models.extras import Key
from kai_cp_models.pods import NodeTerms, Toleration
from kai_cp_models.quantity import Version
from kai_cp_models.snapshot import Taint

DeviceObject = Mapping[str, Any]
"""JSON that no rule reads; it is passed on as it came."""
ALL: Final = "All"
EXACT: Final = "ExactCount"
REFUSING: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep claims off a device; other effects do nothing."""


Value = tuple[str, str | int | bool | Version]
"""Kind (``string``, ``int``, ``bool``, ``version``) and value, so that true and 1 differ."""
Named = tuple[tuple[tuple[str, str], Value], ...]
"""Attributes by (domain, name), sorted."""
DeviceAmounts = tuple[tuple[tuple[str, str], Fraction], ...]
"""Capacities by (domain, name), sorted."""


class DeviceView(NamedTuple):
    """A device as CEL sees it."""

    driver: str
    attributes: Named
    capacity: DeviceAmounts
    shareable: bool = False


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
    selector: NodeTerms | None
    binds_to_node: bool


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass."""

    name: str
    selectors: tuple[str, ...]
    config: tuple[DeviceObject, ...]
    extended_resource: str
    created: str


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: one taint on all devices that it selects. None and "": any.

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
    """One way to satisfy a request: a number of devices of a class."""

    name: str
    """The name in results: the request's name, or ``request/subrequest``."""
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


class AllocatedDevice(NamedTuple):
    """One result of an allocation. ``consumed``: capacities by name as the result writes them."""

    device: DeviceId
    request: str
    admin: bool
    consumed: tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What a claim's status or a BindRequest allocates. ``nodes``: those that can use it; None: all."""

    results: tuple[AllocatedDevice, ...]
    nodes: NodeTerms | None
    written: DeviceObject
    """The same in the API's form."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim. ``requests``: per request its alternatives, the preferred one first."""

    namespace: str
    name: str
    uid: str
    owner_uid: str | None
    queue: str | None
    """Value of the queue label."""
    requests: tuple[tuple[Wanted, ...], ...]
    constraints: tuple[Constraint, ...]
    config: tuple[DeviceObject, ...]
    allocation: ClaimAllocation | None
    reserved: frozenset[str]
    """UIDs of the pods that use it."""
    deleted: bool
    gone: frozenset[str] = frozenset()
    """Those of ``reserved`` that are gone or ended, and the claim's own UID if it is deleted or its owner
    no longer runs: once no other pod uses it, its allocation ends."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)


@dataclass(frozen=True)
class DeviceObjects:
    """The readable DRA objects of the cluster.

    ``devices``: those of the newest generation of every complete pool, in the order of driver, pool, slice
    and place in it.
    """

    devices: tuple[Device, ...] = ()
    counters: Mapping[Counter, Fraction] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    taint_rules: tuple[TaintRule, ...] = ()
    claims: Mapping[tuple[str, str], Claim] = field(default_factory=dict)


DEVICES: Final[Key[DeviceObjects | None]] = Key("devices", None)
"""None: the cluster has neither classes nor slices nor claims."""
