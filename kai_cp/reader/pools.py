"""The shard's node pool: which nodes, queues and pod groups belong to it (7.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kai_cp.json_types import Json
from kai_cp.reader.listed import ListedObjects
from kai_cp_models.policy import Policy

UNLABELLED = "default"
"""Name of the pool of an object without the label, as KAI shows it."""


def pool_of(labels: Mapping[str, str], policy: Policy) -> str:
    """Pool name of an object."""
    return labels.get(policy.node_pool_label) or UNLABELLED


def in_pool(objects: ListedObjects, policy: Policy) -> ListedObjects:
    """The objects of the shard's pool: the label has its value, or is absent when the value is "".

    KAI filters before it exports; a snapshot from another source may be unfiltered.
    """
    if not policy.node_pool_label:
        return objects
    return objects.where(lambda _, obj: _belongs(obj, policy))


def _belongs(obj: Json, policy: Policy) -> bool:
    labels = obj["metadata"].get("labels")
    return belongs(labels if isinstance(labels, dict) else {}, policy)


def belongs(labels: Mapping[str, Any], policy: Policy) -> bool:
    """Whether an object with these labels is of the shard's pool."""
    if policy.node_pool_label not in labels:
        return not (policy.node_pool_label and policy.node_pool)
    return bool(policy.node_pool) and labels[policy.node_pool_label] == policy.node_pool
