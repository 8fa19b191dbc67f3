"""Selectors of volumes, storage capacities, slices and allocations, as masks over the nodes."""

from __future__ import annotations

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
    for term in terms:
        if len(term) == 1 and term[0].field and term[0].operator == "In":
            # Allocations of devices do nothing but name their nodes.
            places = (snapshot.node_index.get(name) for name in term[0].values)
            mask[[place for place in places if place is not None]] = True
        else:
            mask |= np.array(
                [reaches((term,), node.name, node.labels) for node in snapshot.nodes], dtype=np.bool_
            )
    return mask
