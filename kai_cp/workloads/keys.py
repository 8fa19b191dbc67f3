"""Labels and annotations that the grouper reads or writes (1.7), by what they mean."""

from __future__ import annotations

from typing import Final

POD_GROUP: Final = "pod-group-name"
SUBGROUP: Final = "kai.scheduler/subgroup-name"
SKIP: Final = "kai.scheduler/skip-podgrouper"
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
FOLLOW_QUEUE: Final = "kai-cp/follow-queue"
"""Annotation of a workload: "true" moves its pod group when its queue label changes; KAI has no such word."""
USER: Final = "user"
PROJECT: Final = "project"
PRIORITY_CLASS: Final = "priorityClassName"
PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE: Final = "kai.scheduler/staleness-grace-period"
TOPOLOGY: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
SEGMENT_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MAX_RUNTIME: Final = "kai-cp/max-runtime"
OURS: Final = frozenset(
    (LAST_APPLIED, "kai-cp/reservation", "kai-cp/ended", "kai-cp/moved", "kai-cp/failures")
)
"""Annotations of a workload that its pod group does not take over: others write them."""

DEFAULT_QUEUE: Final = "default-queue"
GROUP_PREFIX: Final = "pg"
PREEMPTIBILITIES: Final = frozenset(("preemptible", "non-preemptible", ""))
