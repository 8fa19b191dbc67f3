"""Which GPUs of a node are tried first: those that NVLink joins (``topology/``).

This is a preference: where these GPUs do not satisfy the claims, the search tries other devices. If one
island has enough GPUs, a pod gets GPUs of one island only. The island with the fewest GPUs left over is
chosen, so that larger islands stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kai_cp_models.records.devices import ALL, Claim
from kai_cp_models.rules.stateful.dra.amounts import is_gpu
from kai_cp_models.rules.stateful.dra.catalog import Catalog
from kai_cp_topology.records import NodeFacts

_INDEX: Final = "index"
"""Attribute of NVIDIA's driver: the GPU's number in its node."""
_PRODUCT: Final = "productName"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a node that DRA hands out, in the order of their numbers, and their product."""

    devices: tuple[int, ...]
    product: str


def gpus_of_node(catalog: Catalog, node: int) -> Gpus:
    """The whole GPUs among a node's own devices."""
    found = []
    product = ""
    for position, i in enumerate(catalog.local.get(node, ())):
        device = catalog.devices[i]
        attributes = {name: value for (_, name), (_, value) in device.view.attributes}
        # MIG instances of a partitionable GPU have no NVLink.
        if is_gpu(device.id.driver) and attributes.get("type", "gpu") == "gpu":
            index = attributes.get(_INDEX)
            found.append((index if isinstance(index, int) else position, i))
            product = product or str(attributes.get(_PRODUCT, ""))
    facts = NodeFacts(
        "", catalog.snapshot.nodes[node].labels, len(found), attributes={_PRODUCT: product} if product else {}
    )
    return Gpus(tuple(i for _, i in sorted(found)), facts.product)


def nearest_first(
    gpus: Gpus, candidates: Sequence[int], held: frozenset[int], claims: Sequence[Claim]
) -> Sequence[int]:
    """``candidates`` with the GPUs that suit the claims best in front; ``held``: devices in use."""
    count = sum(
        wanted[0].count
        for claim in claims
        for wanted in claim.requests
        if wanted[0].mode != ALL and is_gpu(wanted[0].device_class)
    )
    if not count or len(gpus.devices) <= 1:
        return candidates
    # The tables of machines and the graphs are loaded only when GPUs are claimed, not at every start.
    from kai_cp_topology.islands import nearest
    from kai_cp_topology.systems import system_of_product

    if not 1 < system_of_product(gpus.product).island < len(gpus.devices):
        return candidates

    usable = set(candidates) - held
    free = [number for number, device in enumerate(gpus.devices) if device in usable]
    chosen = [gpus.devices[number] for number in nearest(gpus.product, len(gpus.devices), free, count)]
    return [*chosen, *(device for device in candidates if device not in chosen)]
