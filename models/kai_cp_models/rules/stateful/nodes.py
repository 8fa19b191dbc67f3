"""Node selectors of volumes, storage capacities, slices and allocations, as masks over the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.rules.stateful.raw import Raw
from kai_cp_models.snapshot import Node, Snapshot


def selected(snapshot: Snapshot, selector: Raw | None) -> Mask | None:
    """Nodes that a core/v1 NodeSelector selects (terms are alternatives); None: no selector."""
    if not selector:
        return None
    mask = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    for term in selector.get("nodeSelectorTerms") or ():
        names = _names(term)
        if names is not None:
            mask[[snapshot.node_index[name] for name in names if name in snapshot.node_index]] = True
        else:
            mask |= np.array([_term(node, term) for node in snapshot.nodes], dtype=np.bool_)
    return mask


def _names(term: Raw) -> Sequence[str] | None:
    """The nodes of a term that does nothing but name them (allocations of devices do)."""
    fields: Sequence[Raw] = term.get("matchFields") or ()
    if term.get("matchExpressions") or len(fields) != 1:
        return None
    need = fields[0]
    return need.get("values") or () if (need["key"], need["operator"]) == ("metadata.name", "In") else None


def labelled(snapshot: Snapshot, selector: Raw | None) -> Mask | None:
    """Nodes whose labels a metav1.LabelSelector selects; None: no selector."""
    if selector is None:
        return None
    return np.array([selects(selector, node.labels) for node in snapshot.nodes], dtype=np.bool_)


def selects(selector: Raw, labels: Mapping[str, str]) -> bool:
    """Whether a metav1.LabelSelector selects labels."""
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and _all(labels, selector.get("matchExpressions") or ())


def _term(node: Node, term: Raw) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    # A term without requirements selects nothing.
    return bool(expressions or fields) and (
        _all(node.labels, expressions) and _all({"metadata.name": node.name}, fields)
    )


def _all(labels: Mapping[str, str], needs: Any) -> bool:
    return all(_holds(labels.get(need["key"]), need["operator"], need.get("values") or ()) for need in needs)


def _holds(value: str | None, operator: str, values: Any) -> bool:
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    try:
        have, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else operator == "Lt" and have < bound
