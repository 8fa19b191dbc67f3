"""Selectors of volumes, storage capacities, slices and allocations, as masks over the nodes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import LabelSelector, NodeTerms
from kai_cp_models.selectors import reaches, selects
from kai_cp_models.snapshot import Snapshot


def labelled(snapshot: Snapshot, selector: LabelSelector | None) -> Mask:
    """[N] nodes whose labels a metav1.LabelSelector selects."""
    return np.array([selects(selector, node.labels) for node in snapshot.nodes], dtype=np.bool_)


def selected(snapshot: Snapshot, terms: NodeTerms | None) -> Mask | None:
    """[N] nodes that a core/v1 NodeSelector selects; None: no selector."""
    if terms is None:
        return None
    mask = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    mask[places(snapshot, terms)] = True
    return mask


def places(snapshot: Snapshot, terms: NodeTerms) -> list[int]:
    """The positions of the nodes that a NodeSelector selects, in order. Only nodes with a label that a term
    names are examined, because most volumes and devices name the one node that they are on."""
    found = set[int]()
    for term in terms:
        named = next((need for need in term if need.operator == "In"), None)
        if named is None:
            some: Iterable[int] = range(len(snapshot.nodes))
        elif named.field:
            some = (i for name in named.values if (i := snapshot.node_index.get(name)) is not None)
        else:
            nodes = snapshot.nodes_by_label.get(named.key, {})
            some = chain.from_iterable(nodes.get(value, ()) for value in named.values)
        nodes_here = ((i, snapshot.nodes[i]) for i in some)
        found.update(i for i, node in nodes_here if reaches((term,), node.name, node.labels))
    return sorted(found)
