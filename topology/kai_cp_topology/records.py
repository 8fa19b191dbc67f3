"""The plain values of the fabric: input and output. All can be written as JSON.

Bandwidths are GB/s (10**9 bytes), both directions together, as vendors state them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Node label: the NVLink domain, ``<cluster uuid>.<clique id>`` (GPU feature discovery)."""
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
"""Node label: the GPU product (GPU feature discovery)."""
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Node label that every node has for itself."""

LinkKind = Literal["nvlink", "pcie", "network"]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known about a node. ``gpus``: devices it has; ``free_gpus``: whole devices that no pod holds.

    ``attributes``: DRA device attributes shared by all GPUs of the node, by plain name
    (``productName``, ``clusterUUID``, ``cliqueID``); they are read where the label is missing.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    free_gpus: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def clique(self) -> str:
        """The NVLink domain that the node names; "" when it names none."""
        label = self.labels.get(CLIQUE_LABEL, "")
        if label or "cliqueID" not in self.attributes:
            return label
        return f"{self.attributes.get('clusterUUID', '')}.{self.attributes['cliqueID']}"

    @property
    def product(self) -> str:
        """The GPU product in the spelling of the label; "" when unknown."""
        return self.labels.get(PRODUCT_LABEL) or self.attributes.get("productName", "").replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a node. ``island``: GPUs of a node with one number reach each other by NVLink."""

    index: int
    island: int


@dataclass(frozen=True, slots=True)
class Link:
    """The best way between two GPUs of one node, by their indices."""

    a: int
    b: int
    kind: LinkKind
    gbytes_per_second: int


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a tree of domains, by its node label; ``name`` is the label without its prefix."""

    label: str

    @property
    def name(self) -> str:
        return self.label.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes that agree on every level down to this one. ``path``: label values, widest first."""

    level: str
    path: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    free_gpus: int

    @property
    def name(self) -> str:
        """The value at the domain's own level."""
        return self.path[-1] if self.path else ""

    @property
    def parent(self) -> tuple[str, ...]:
        """Path of the domain around this one. A level that a node lacks is an empty value."""
        above = self.path[:-1]
        while above and not above[-1]:
            above = above[:-1]
        return above


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of domains. ``domains``: the root first, every domain before those inside it.

    ``outside``: nodes that lack a level label and therefore belong to no domain.
    """

    name: str
    levels: tuple[Level, ...]
    domains: tuple[Domain, ...]
    outside: tuple[str, ...] = ()

    @property
    def root(self) -> Domain:
        return self.domains[0]

    def children(self) -> dict[tuple[str, ...], tuple[Domain, ...]]:
        """Domains right below every path."""
        found: dict[tuple[str, ...], list[Domain]] = {}
        for domain in self.domains[1:]:
            found.setdefault(domain.parent, []).append(domain)
        return {path: tuple(domains) for path, domains in found.items()}


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest gang of pods with ``pod_gpus`` GPUs each that fits into one domain of a level now.

    ``level``: a level label, "" for all nodes of the tree. ``where``: path of the domain with most room.
    ``hops``: longest way between two nodes of that domain, in edges of the tree.
    """

    level: str
    pod_gpus: int
    pods: int
    where: tuple[str, ...]
    hops: int


@dataclass(frozen=True, slots=True)
class Locality:
    """How close the GPUs of a gang are to each other.

    ``worst_gbytes_per_second``: bandwidth of the worst pair; None for a single GPU. ``hops``: longest way
    between two of its nodes in the tree, in edges (0: one node, 2: one place of the closest scale).
    ``level``: node label of the closest scale at which all its nodes share a place; "" when they share none.
    ``nvlink_domains``: how many it spans. ``segment``: the largest number s for which the gang divides
    into segments of s GPUs, each inside one NVLink domain.
    """

    worst_gbytes_per_second: int | None
    hops: int
    level: str
    nvlink_domains: int
    segment: int
