"""Vectors: nodes and pods aligned with the dimensions of the snapshot; equal specs become one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kai_cp.reader.classes import SchedulingKeys
from kai_cp.reader.nodes import NodeDraft
from kai_cp.reader.pods import PlacedFacts
from kai_cp.reader.resources import dimensions_of
from kai_cp_models.snapshot import Node, Pod, PodSpec, Policy


def aligned(
    node_drafts: Mapping[str, NodeDraft], placed: Sequence[PlacedFacts], policy: Policy
) -> tuple[tuple[str, ...], tuple[Node, ...], tuple[Pod, ...]]:
    """Dimensions, nodes and pods, in the order of ``node_drafts``' names and of ``placed``."""
    drafts = {id(row.draft): row.draft for row in placed}
    dimensions = dimensions_of(
        {name for draft in drafts.values() for name in draft.amounts},
        {name for draft in node_drafts.values() for name in draft.amounts},
    )
    keys = SchedulingKeys(drafts.values())
    numa = policy.plugin("numa")
    finished: dict[tuple[int, str], PodSpec] = {}
    interned: dict[PodSpec, PodSpec] = {}
    pods: list[Pod] = []
    for row in placed:
        facts = row.facts
        key = keys.key(row.draft, facts.key.namespace, facts.labels)
        spec = finished.get((id(row.draft), key))
        if spec is None:
            fresh = row.draft.finished(dimensions, key, numa=numa)
            spec = finished[id(row.draft), key] = interned.setdefault(fresh, fresh)
        pods.append(_pod(row, spec, policy))
    nodes = tuple(node_drafts[name].finished(dimensions) for name in sorted(node_drafts))
    return dimensions, nodes, tuple(pods)


def _pod(row: PlacedFacts, spec: PodSpec, policy: Policy) -> Pod:
    facts = row.facts
    return Pod(
        key=facts.key,
        uid=facts.uid,
        spec=spec,
        status=row.status,
        created=facts.created,
        group=row.group,
        subgroup=facts.subgroup,
        node=row.node,
        gpu_groups=row.gpu_groups,
        order=facts.order,
        labels=facts.labels,
        nominated_node=facts.nominated or None,
        ours=facts.scheduler == policy.scheduler_name,
        reservation=facts.reservation,
        scaling=facts.scaling,
        claim_allocations={} if row.promise is None else row.promise.claim_allocations,
        numa_zones=row.numa_zones,
    )
