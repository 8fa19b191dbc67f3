"""Reads where a pod may run: selectors, tolerations, node and pod affinity, spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import (
    Malformed,
    int_at,
    object_at,
    objects_at,
    path,
    shown,
    strings_at,
    text_at,
    texts_at,
)
from kai_cp_models.pods import (
    LabelSelector,
    NodeTerms,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from kai_cp_models.selectors import selects

Namespaces = Mapping[str, Mapping[str, str]]
"""Labels by namespace; empty when the snapshot lists no namespaces."""

_NODE_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
_LABEL_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def read_tolerations(spec: Json) -> Iterator[Toleration]:
    """``spec.tolerations``."""
    for i, raw in enumerate(objects_at(spec, "tolerations", "spec")):
        where = f"spec.tolerations[{i}]"
        yield Toleration(
            text_at(raw, "key", where),
            text_at(raw, "operator", where) or "Equal",
            text_at(raw, "value", where),
            text_at(raw, "effect", where),
        )


def read_node_affinity(affinity: Json) -> NodeTerms | None:
    """The required node affinity: alternatives (OR) of terms. An empty term matches no node and is left
    out.
    """
    node = object_at(affinity, "nodeAffinity", "spec.affinity")
    return read_node_terms(node, _REQUIRED, "spec.affinity.nodeAffinity")


def read_node_terms(holder: Json, key: str, where: str) -> NodeTerms | None:
    """A core/v1 NodeSelector without its empty terms; None when absent."""
    if holder.get(key) is None:
        return None
    selector = object_at(holder, key, where)
    inside = path(where, key)
    terms: list[tuple[Requirement, ...]] = []
    for i, raw in enumerate(objects_at(selector, "nodeSelectorTerms", inside)):
        inner = f"{inside}.nodeSelectorTerms[{i}]"
        term = (
            *_requirements(raw, "matchExpressions", inner, _NODE_OPERATORS),
            *_requirements(raw, "matchFields", inner, _NODE_OPERATORS, field=True),
        )
        if term:
            terms.append(term)
    return tuple(terms)


def _requirements(
    holder: Json, key: str, where: str, operators: frozenset[str], *, field: bool = False
) -> Iterator[Requirement]:
    for i, raw in enumerate(objects_at(holder, key, where)):
        inner = f"{where}.{key}[{i}]"
        operator = text_at(raw, "operator", inner)
        if operator not in operators:
            raise Malformed(f"{inner}.operator", f"{shown(operator)} is not an operator")
        yield Requirement(text_at(raw, "key", inner), operator, texts_at(raw, "values", inner), field)


def read_selector(holder: Json, key: str, where: str) -> LabelSelector | None:
    """A ``metav1.LabelSelector``; None when absent (an absent one matches nothing)."""
    if holder.get(key) is None:
        return None
    raw = object_at(holder, key, where)
    inner = path(where, key)
    equal = sorted(strings_at(raw, "matchLabels", inner).items())
    return LabelSelector(
        (
            *(Requirement(name, "In", (value,)) for name, value in equal),
            *_requirements(raw, "matchExpressions", inner, _LABEL_OPERATORS),
        )
    )


def read_pod_terms(
    affinity: Json, kind: str, namespace: str, namespaces: Namespaces
) -> Iterator[PodAffinityTerm]:
    """Required, then preferred terms of ``podAffinity`` or ``podAntiAffinity``; raises ``Malformed``."""
    holder = object_at(affinity, kind, "spec.affinity")
    where = f"spec.affinity.{kind}"
    for i, raw in enumerate(objects_at(holder, _REQUIRED, where)):
        yield _pod_term(raw, f"{where}.{_REQUIRED}[{i}]", 0, namespace, namespaces)
    for i, raw in enumerate(objects_at(holder, _PREFERRED, where)):
        inner = f"{where}.{_PREFERRED}[{i}]"
        weight = int_at(raw, "weight", inner)
        if weight is None or not 1 <= weight <= 100:
            raise Malformed(f"{inner}.weight", f"{shown(weight)} is not between 1 and 100")
        term = object_at(raw, "podAffinityTerm", inner)
        yield _pod_term(term, f"{inner}.podAffinityTerm", weight, namespace, namespaces)


def _pod_term(raw: Json, where: str, weight: int, namespace: str, namespaces: Namespaces) -> PodAffinityTerm:
    topology_key = text_at(raw, "topologyKey", where)
    if not topology_key:
        raise Malformed(f"{where}.topologyKey", "is missing")
    listed = texts_at(raw, "namespaces", where)
    selector = read_selector(raw, "namespaceSelector", where)
    resolved: tuple[str, ...] | None
    if selector is None:
        resolved = listed or (namespace,)
    elif not selector.requirements:
        resolved = None
    else:
        chosen = {name for name, labels in namespaces.items() if selects(selector, labels)}
        resolved = tuple(sorted(chosen.union(listed)))
    return PodAffinityTerm(
        read_selector(raw, "labelSelector", where),
        topology_key,
        resolved if resolved is None else tuple(sorted(resolved)),
        weight,
    )


def read_spread(spec: Json, labels: Mapping[str, str]) -> Iterator[SpreadConstraint]:
    """DoNotSchedule spread constraints; ``matchLabelKeys`` are resolved with the pod's ``labels``.

    Raises ``Malformed``.
    """
    for i, raw in enumerate(objects_at(spec, "topologySpreadConstraints", "spec")):
        where = f"spec.topologySpreadConstraints[{i}]"
        if text_at(raw, "whenUnsatisfiable", where) not in ("", "DoNotSchedule"):
            continue
        topology_key = text_at(raw, "topologyKey", where)
        if not topology_key:
            raise Malformed(f"{where}.topologyKey", "is missing")
        selector = read_selector(raw, "labelSelector", where)
        keys = texts_at(raw, "matchLabelKeys", where)
        if selector is not None and keys:
            known = {requirement.key for requirement in selector.requirements}
            extra = (
                Requirement(key, "In", (labels[key],)) for key in keys if key in labels and key not in known
            )
            selector = LabelSelector((*selector.requirements, *extra))
        skew = int_at(raw, "maxSkew", where, minimum=1)
        least = int_at(raw, "minDomains", where, minimum=1)
        yield SpreadConstraint(
            1 if skew is None else skew,
            topology_key,
            selector,
            1 if least is None else least,
            text_at(raw, "nodeAffinityPolicy", where) != "Ignore",
            text_at(raw, "nodeTaintsPolicy", where) == "Honor",
        )
