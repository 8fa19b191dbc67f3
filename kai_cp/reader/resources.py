"""Resource names as dimensions of the vector, and resource lists as amounts (2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, entry, shown
from kai_cp.reader.quantity import quantity
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.pods import BASE_DIMENSIONS, MILLI, in_bytes, in_thousandths

ResourceAmounts = dict[str, int]
"""Amount by dimension name, in the unit of the dimension."""


class Dimension(NamedTuple):
    """A dimension: ``milli`` ones count in thousandths; ``whole`` ones accept only integers."""

    name: str
    milli: bool
    whole: bool = False


@lru_cache(maxsize=4096)
def dimension(name: str) -> Dimension | None:
    """The dimension of a resource name; None for names that are never accounted.

    Every name that ends in ``gpu`` is a GPU. MIG instances are whole counts, CPUs, extended
    resources, hugepages and attachable volumes thousandths, memory and storage bytes.
    """
    if name.endswith("gpu"):
        return Dimension("gpu", milli=True, whole=True)
    milli = in_thousandths(name)
    known = milli or in_bytes(name) or name == "pods" or name.startswith(MIG_PREFIX)
    return Dimension(name, milli) if known else None


def amounts(resources: Json, where: str) -> ResourceAmounts:
    """A ``ResourceList`` as amounts; zero amounts are left out. Raises ``Malformed``."""
    found: ResourceAmounts = {}
    for name, value in resources.items():
        kind = dimension(name)
        if kind is None:
            continue
        field = entry(where, name) if "/" in name else f"{where}.{name}"
        amount = quantity(value, field, milli=kind.milli)
        if kind.whole and amount % MILLI:
            raise Malformed(field, f"{shown(value)} is not a whole number")
        if amount:
            found[kind.name] = found.get(kind.name, 0) + amount
    return found


def add(into: ResourceAmounts, other: Mapping[str, int]) -> None:
    """Add ``other`` to ``into``."""
    for name, amount in other.items():
        into[name] = into.get(name, 0) + amount


def raise_to(into: ResourceAmounts, other: Mapping[str, int]) -> None:
    """Raise ``into`` to the element-wise maximum of both."""
    for name, amount in other.items():
        if amount > into.get(name, 0):
            into[name] = amount


def names_in(amounts: Iterable[ResourceAmounts]) -> set[str]:
    """The dimensions that some of the amounts have."""
    return set[str]().union(*amounts)


def dimensions_of(asked: Iterable[str], offered: Iterable[str]) -> tuple[str, ...]:
    """Dimensions of a snapshot: the base ones, all resources that pods request, and MIG instances on nodes.

    Resources that nodes offer but no pod requests do not matter.
    """
    named = set(asked) | {name for name in offered if name.startswith(MIG_PREFIX)}
    return (*BASE_DIMENSIONS, *sorted(named - set(BASE_DIMENSIONS)))


def vector(found: Mapping[str, int], dimensions: tuple[str, ...]) -> tuple[int, ...]:
    """Amounts aligned with ``dimensions``."""
    return tuple(found.get(name, 0) for name in dimensions)
