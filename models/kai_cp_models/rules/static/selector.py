"""Selector: the node carries every label of the pod's nodeSelector and meets a required affinity term (7.1).

Terms are alternatives; a term holds when all its requirements do. As in Kubernetes, an empty term and a
requirement that does not parse hold nowhere; ``NotIn`` holds on a node without the label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import Pod, Requirement
from kai_cp_models.snapshot import Node, Snapshot

if TYPE_CHECKING:
    from kai_cp_models.rules.static.table import NodeTable

NAME: Final = "selector"
FAMILY: Final = "selector"

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NAME_FIELD: Final = "metadata.name"
_MOST_TOLD: Final = 4
"""The most terms, and the most values of a requirement, that a refusal names."""


def mask(table: NodeTable, pod: Pod) -> Mask | None:
    """[N] nodes that the pod's nodeSelector and required node affinity allow; None: all."""
    spec = pod.spec
    if not table.predicates or (not spec.node_selector and spec.node_affinity is None):
        return None
    nodes = np.ones(len(table), dtype=bool)
    for key, value in spec.node_selector:
        nodes &= table.label(key).among((value,))
    if spec.node_affinity is not None:
        allowed = np.zeros(len(table), dtype=bool)
        for term in spec.node_affinity:
            allowed |= _term_mask(table, term)
        nodes &= allowed
    return nodes


def _term_mask(table: NodeTable, term: Sequence[Requirement]) -> Mask:
    nodes = np.full(len(table), bool(term))
    for requirement in term:
        nodes &= _requirement_mask(table, requirement)
    return nodes


def _requirement_mask(table: NodeTable, requirement: Requirement) -> Mask:
    nowhere = np.zeros(len(table), dtype=bool)
    if not _parses(requirement):
        return nowhere
    column = table.name_column if requirement.field else table.label(requirement.key)
    present: Mask = column.codes >= 0
    match requirement.operator:
        case "In":
            return column.among(requirement.values)
        case "NotIn":
            return ~column.among(requirement.values)
        case "Exists":
            return present
        case "DoesNotExist":
            return ~present
        case "Gt" | "Lt" as operator:
            bound = int(requirement.values[0])
            sign = 1 if operator == "Gt" else -1
            return column.where(
                lambda text: (found := _integer(text)) is not None and sign * (found - bound) > 0
            )
    return nowhere


def broken(snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
    """Which part of selector or affinity the node does not meet, or None."""
    if not snapshot.policy.plugin("predicates"):
        return None
    for key, value in pod.spec.node_selector:
        if node.labels.get(key) != value:
            return f"node selector {key}={value} not met"
    terms = pod.spec.node_affinity
    if terms is None or any(term and all(_holds(r, node) for r in term) for term in terms):
        return None
    return f"required node affinity not met: {_words(terms)}"


def _words(terms: Sequence[Sequence[Requirement]]) -> str:
    """Node affinity in words, cut where it is long."""
    told = [" and ".join(map(_requirement_words, term)) or "an empty term" for term in terms[:_MOST_TOLD]]
    return " or ".join([*told, *(["…"] if len(terms) > _MOST_TOLD else [])]) or "no term"


def _requirement_words(requirement: Requirement) -> str:
    """A requirement as kubectl prints it."""
    values = requirement.values[:_MOST_TOLD] + ("…",) * (len(requirement.values) > _MOST_TOLD)
    of = f" [{', '.join(values)}]" if values else ""
    return f"{requirement.key} {requirement.operator}{of}"


def _holds(requirement: Requirement, node: Node) -> bool:
    if not _parses(requirement):
        return False
    value = node.name if requirement.field else node.labels.get(requirement.key)
    values = requirement.values
    if requirement.operator == "In":
        return value in values
    if requirement.operator == "NotIn":
        return value not in values
    if requirement.operator == "Exists":
        return value is not None
    if requirement.operator == "DoesNotExist":
        return value is None
    number = None if value is None else _integer(value)
    if number is None:
        return False
    return number > int(values[0]) if requirement.operator == "Gt" else number < int(values[0])


def _parses(requirement: Requirement) -> bool:
    """Whether Kubernetes would accept the requirement; one that it would not holds nowhere."""
    count = len(requirement.values)
    if requirement.field:
        return requirement.key == _NAME_FIELD and requirement.operator in ("In", "NotIn") and count == 1
    match requirement.operator:
        case "In" | "NotIn":
            return count > 0
        case "Exists" | "DoesNotExist":
            return count == 0
        case "Gt" | "Lt":
            return count == 1 and _integer(requirement.values[0]) is not None
    return False


def _integer(text: str) -> int | None:
    """A 64-bit decimal integer as Kubernetes reads it, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
