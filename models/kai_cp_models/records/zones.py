"""NodeResourceTopology objects (``topology.node.k8s.io``) as records: zones of a node, and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.migs import MIG_PREFIX

SINGLE: Final = "single-numa-node"
RESTRICTED: Final = "restricted"
BEST_EFFORT: Final = "best-effort"
NONE: Final = "none"


@dataclass(frozen=True)
class NumaTopology:
    """One usable NodeResourceTopology. ``node``: its name."""

    node: str
    policy: str
    by_container: bool
    """The Topology Manager aligns every container by itself."""
    zones: tuple[str, ...]
    allocatable: tuple[Mapping[str, int], ...]
    available: tuple[Mapping[str, int], ...]
    resources: Mapping[str, str]
    """Resource name as the object writes it, by dimension."""


TOPOLOGIES: Final[Key[tuple[NumaTopology, ...]]] = Key("numa", ())
"""The NodeResourceTopologies by node."""


def dimension(resource: str) -> str:
    """The dimension that a resource name belongs to (2.1)."""
    return "gpu" if resource.endswith("gpu") else resource


def in_milli(name: str) -> bool:
    """Whether a dimension is counted in thousandths (2.1)."""
    if name in ("cpu", "gpu"):
        return True
    return ("/" in name and not name.startswith(MIG_PREFIX)) or name.startswith("hugepages-")
