"""Labels, annotations and names that are a contract with KAI's other components and with Kubernetes (1.7, 9).

Each is stated once: here, or in ``kai_cp_models.records.notes`` where models read our own.
"""

from __future__ import annotations

from typing import Final

from kai_cp_models.records import notes

# Pods and their pod groups.
POD_GROUP: Final = "pod-group-name"
SUBGROUP: Final = "kai.scheduler/subgroup-name"
QUEUE: Final = "kai.scheduler/queue"
NODE_POOL: Final = "kai.scheduler/node-pool"
LAST_START: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION: Final = "kai.scheduler/last-eviction-timestamp"
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
SELECTED_NODE: Final = "selected-node"
EVICTED_PODS: Final = "num-evicted-pods"
EVICTOR_ACTION: Final = "evictor-action-type"
EVICTOR_NAME: Final = "evictor-pod-group-name"
EVICTOR_NAMESPACE: Final = "evictor-pod-group-namespace"

# GPUs and shares of them.
GPU: Final = "nvidia.com/gpu"
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
MPS: Final = "mps"
RECEIVED_TYPE: Final = "received-resource-type"
SHARED_GPU_CONFIG: Final = "runai/shared-gpu-configmap"
GPU_GROUP: Final = "runai-gpu-group"
RESERVED_DEVICE: Final = "run.ai/reserve_for_gpu_index"
NUMA_OBSERVED: Final = "kai.scheduler/numa-placement-observed"
NUMA_PREDICTED: Final = "kai.scheduler/numa-placement-predicted"

# Workloads, as the pod grouper reads them.
SKIP: Final = "kai.scheduler/skip-podgrouper"
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
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
DEFAULT_QUEUE: Final = "default-queue"
GROUP_PREFIX: Final = "pg"
PREEMPTIBILITIES: Final = frozenset(("preemptible", "non-preemptible", ""))

# Our own.
MAX_RUNTIME: Final = notes.MAXIMUM
ENDED: Final = notes.ENDED
"""When the maximum run time of a pod group ended it; equal to its last eviction then."""
MOVED: Final = notes.MOVED
"""Restarts for defragmentation in the last hour, of a pod group."""
FAILURES: Final = notes.FAILURES
"""How often in a row the bind of a pod failed, of a pod group."""
FOLLOW_QUEUE: Final = "kai-cp/follow-queue"
"""Annotation of a workload: "true" moves its pod group when its queue label changes; KAI has no such word."""
ORDERED_BY: Final = "kai-cp/ordered-by"
"""Annotation of a BindRequest: the process of ours that wrote it."""
HELD_GATE: Final = "kai-cp/bind-backoff"
"""Scheduling gate that a snapshot shows on a pod whose bind keeps failing; it is never written to the pod."""
OURS: Final = frozenset((LAST_APPLIED, notes.RESERVATION, ENDED, MOVED, FAILURES))
"""Annotations of a workload that its pod group does not take over: others write them."""

# Namespaces and applications of KAI's components.
SCALING_NAMESPACE: Final = "kai-scale-adjust"
RESERVATION_APP: Final = "kai-resource-reservation"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
