"""The operator's settings of the pod grouper: KAI's flags (10.1), and additional kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_cp.keys import NODE_POOL, QUEUE
from kai_cp.workloads.kinds import Kinds, builtin_kinds


@dataclass(frozen=True, slots=True)
class GroupingSettings:
    """Settings of the grouper, with KAI's defaults."""

    scheduler_name: str = "kai-scheduler"
    queue_label_key: str = QUEUE
    node_pool_label_key: str = NODE_POOL
    search_legacy_pod_groups: bool = True
    knative_gang_schedule: bool = True
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Only pods in namespaces with all these labels are grouped."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    """Only pods with all these labels are grouped."""
    kinds: Kinds = field(default_factory=builtin_kinds)
