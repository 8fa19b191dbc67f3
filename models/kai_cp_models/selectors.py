"""Label and node selectors applied, to labels and as masks over the nodes; the checker has its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.snapshot import LabelSelector, Node, NodeTerms, Requirement, Snapshot


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a metav1.LabelSelector selects the labels: None selects nothing, an empty one all."""
    return selector is not None and all(holds(need, labels.get(need.key)) for need in selector.requirements)


def holds(need: Requirement, value: str | None) -> bool:
    """Whether a requirement holds for the value of its label; None: there is no such label."""
    match need.operator:
        case "In":
            return value in need.values
        case "NotIn":
            return value not in need.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        have, bound = int(value or ""), int(need.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if need.operator == "Gt" else need.operator == "Lt" and have < bound


def labelled(snapshot: Snapshot, selector: LabelSelector | None) -> Mask:
    """Nodes whose labels a selector selects."""
    return np.array([selects(selector, node.labels) for node in snapshot.nodes], dtype=np.bool_)


def selected(snapshot: Snapshot, terms: NodeTerms | None) -> Mask | None:
    """Nodes that a core/v1 NodeSelector selects (terms are alternatives); None: no selector."""
    if terms is None:
        return None
    mask = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    for term in terms:
        if len(term) == 1 and term[0].field and term[0].operator == "In":
            # Allocations of devices do nothing but name their nodes.
            places = (snapshot.node_index.get(name) for name in term[0].values)
            mask[[place for place in places if place is not None]] = True
        else:
            mask |= np.array([_meets(node, term) for node in snapshot.nodes], dtype=np.bool_)
    return mask


def _meets(node: Node, term: tuple[Requirement, ...]) -> bool:
    """Whether a node meets all of a term; one without requirements selects nothing."""
    return bool(term) and all(
        holds(need, node.name if need.field else node.labels.get(need.key)) for need in term
    )
