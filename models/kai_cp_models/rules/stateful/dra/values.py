"""Values of CEL that the library lacks, and a device as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from celpy.celtypes import BoolType, IntType, ListType, MapType, StringType

from kai_cp_models.records.devices import DeviceView

HIDDEN: Final = ""
"""Stands for all attributes and capacities of a domain that an expression cannot see."""


class Maybe(ListType):
    """An optional value: it holds one value or none."""


class DomainMap(MapType):
    """Attributes by domain; a domain that the device lacks is empty, as Kubernetes has it."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else MapType()


def entry(value: Any, key: Any) -> Maybe:
    """The entry of a map or list, or of one that an optional value holds. Raises TypeError for others."""
    if isinstance(value, Maybe):
        return entry(value[0], key) if value else value
    if isinstance(value, MapType):
        return Maybe([value[key]] if isinstance(value, DomainMap) or key in value else [])
    if isinstance(value, list):
        return Maybe([value[key]] if 0 <= key < len(value) else [])
    raise TypeError(f"{type(value)} has no entries")


def as_cel(device: DeviceView) -> MapType:
    """The variable ``device``."""

    def wrapped(value: object) -> Any:
        if isinstance(value, bool):
            return BoolType(value)
        if isinstance(value, int):
            return IntType(value)
        return StringType(value) if isinstance(value, str) else value

    def by_domain(items: Mapping[tuple[str, str], object]) -> DomainMap:
        domains: dict[Any, Any] = {}
        for (domain, name), value in items.items():
            found = domains.setdefault(StringType(domain), MapType())
            if name != HIDDEN:
                found[StringType(name)] = wrapped(value)
        return DomainMap(domains)

    return MapType(
        {
            StringType("driver"): StringType(device.driver),
            StringType("attributes"): by_domain({name: value for name, (_, value) in device.attributes}),
            StringType("capacity"): by_domain(dict(device.capacity)),
            StringType("allowMultipleAllocations"): BoolType(device.shareable),
        }
    )
