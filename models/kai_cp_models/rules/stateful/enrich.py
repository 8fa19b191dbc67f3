"""What device objects add to a snapshot before it is used: amounts, capacities, skipped objects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.pods import MILLI
from kai_cp_models.records.devices import DEVICES, Wanted
from kai_cp_models.records.judging import JUDGING
from kai_cp_models.rules.stateful.dra.amounts import claim_milli_gpus
from kai_cp_models.rules.stateful.dra.catalog import CATALOG, Catalog
from kai_cp_models.rules.stateful.dra.extended import SERVED
from kai_cp_models.rules.stateful.dra.refs import classed
from kai_cp_models.rules.stateful.dra.state import DraState
from kai_cp_models.snapshot import Node, SetAside, Snapshot


def with_catalog(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its catalog of devices, made once for all; itself where it has none."""
    if snapshot.extras[DEVICES] is None:
        return snapshot
    return replace(snapshot, extras=snapshot.extras.having(CATALOG, Catalog(snapshot)))


def enriched(snapshot: Snapshot, set_aside: tuple[SetAside, ...]) -> Snapshot:
    """The snapshot after its device objects were read into nodes and pods; the same one if it has none.

    ``set_aside``: objects that the stateful rules skipped. Claims count as GPUs in queues
    (``CLAIM_MILLI_GPUS``, 2.5). Where DRA serves an extended resource that the node does not advertise, the
    node's vector gets the number of devices. So a fit by vectors is necessary, and the DRA rule decides
    whether it is sufficient. Pods that differ only in the names of their own claims get one spec. If nothing
    is decided (``Judging.judged`` is False), no selector is evaluated.
    """
    extras = snapshot.extras
    catalog = extras[CATALOG]
    served: dict[int, dict[str, int]] = {}
    judged = extras[JUDGING].judged
    if catalog is not None:
        claims = claim_milli_gpus(snapshot, catalog.claims)
        served = _served(snapshot, catalog) if judged else {}
        if claims:
            extras = extras.having(CLAIM_MILLI_GPUS, claims)
        if served:
            extras = extras.having(SERVED, {d: frozenset(counts) for d, counts in served.items()})
    elif not set_aside:
        return snapshot
    found = replace(
        snapshot,
        nodes=tuple(_with_devices(node, served) for node in snapshot.nodes) if served else snapshot.nodes,
        set_aside=(*snapshot.set_aside, *set_aside),
        extras=extras,
    )
    known = catalog is not None and judged
    return classed(found, DraState(found).identity) if known else found


def claims_wait(snapshot: Snapshot) -> bool:
    """Whether claims wait for a later cycle, because selectors used all steps of this one."""
    catalog = snapshot.extras[CATALOG]
    return catalog is not None and catalog.waiting


def _served(snapshot: Snapshot, catalog: Catalog) -> dict[int, dict[str, int]]:
    """Devices by node name, for every dimension that a class backs, where nothing is advertised."""
    backed = catalog.extended()
    found: dict[int, dict[str, int]] = {}
    for d, name in enumerate(snapshot.dimensions):
        wanted = Wanted("", backed[name].name) if name in backed else None
        if wanted is not None and catalog.usable(wanted):
            counts = catalog.per_node(catalog.satisfying(wanted))
            found[d] = {
                snapshot.nodes[i].name: int(counts[i])
                for i in np.flatnonzero(counts)
                if snapshot.nodes[i].allocatable[d] <= 0
            }
    return {d: counts for d, counts in found.items() if counts}


def _with_devices(node: Node, served: dict[int, dict[str, int]]) -> Node:
    added = {d: counts[node.name] * MILLI for d, counts in served.items() if node.name in counts}
    if not added:
        return node
    return replace(node, allocatable=tuple(added.get(d, v) for d, v in enumerate(node.allocatable)))
