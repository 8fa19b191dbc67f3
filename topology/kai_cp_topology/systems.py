"""Known systems: how the GPUs of a product are joined. The data is ``systems.yaml``.

To add a machine, write an entry there and its expected islands in the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

import yaml

from kai_cp_topology.records import NodeFacts


@dataclass(frozen=True, slots=True)
class System:
    """One kind of machine: an entry of ``systems.yaml``.

    ``products``: patterns of GPU product names. ``gpus``: GPUs of a usual node. ``island``: GPUs of a node
    that reach each other by NVLink. ``domain``: GPUs of one NVLink domain. ``nvlink``, ``pcie``, ``network``:
    GB/s between two GPUs of one island or domain, of two islands, of two nodes.
    """

    name: str
    products: tuple[str, ...]
    gpus: int
    island: int
    domain: int
    nvlink: int
    pcie: int
    network: int

    @property
    def spans_nodes(self) -> bool:
        """Whether an NVLink domain of this system reaches across nodes."""
        return self.domain > self.gpus


@cache
def systems() -> tuple[System, ...]:
    """All known systems in the order of matching; the last one matches every product."""
    text = files("kai_cp_topology").joinpath("systems.yaml").read_text(encoding="utf-8")
    # A cycle waits for this table; libyaml, where it was built in, reads it ten times faster.
    raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tuple(System(**{**entry, "products": tuple(entry["products"])}) for entry in raw)


@cache
def system_of_product(product: str) -> System:
    """The first known system whose patterns match a GPU product name, in any case of letters."""
    name = product.lower()
    return next(s for s in systems() if any(fnmatchcase(name, pattern.lower()) for pattern in s.products))


def system_of(node: NodeFacts) -> System:
    """The system that a node is part of."""
    return system_of_product(node.product)
