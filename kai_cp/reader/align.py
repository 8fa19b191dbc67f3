"""Aligns nodes and pods with the dimensions of the snapshot; equal specs become one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kai_cp.reader.classes import SchedulingKeys
from kai_cp.reader.nodes import NodeDraft
from kai_cp.reader.pods import PlacedFacts
from kai_cp.reader.resources import dimensions_of
from kai_cp_models.pods import Pod, PodKey, PodSpec
from kai_cp_models.policy import Policy
from kai_cp_models.records.devices import ClaimAllocation
from kai_cp_models.snapshot import Node

_SCALING: Final = "scaling-pod"
_NO_ALLOCATIONS: Final[Mapping[str, ClaimAllocation]] = {}


@dataclass(frozen=True, slots=True)
class Aligned:
    """The result for drafts: the records, and the drafts they were made from, for the next reading."""

    policy: Policy = field(default_factory=Policy)
    dimensions: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[NodeDraft, Node]] = field(default_factory=dict)
    rows: Mapping[PodKey, PlacedFacts] = field(default_factory=dict)
    pods: Mapping[PodKey, Pod] = field(default_factory=dict)
    specs: Mapping[PodSpec, PodSpec] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        node_drafts: Mapping[str, NodeDraft],
        placed: Sequence[PlacedFacts],
        policy: Policy,
        before: Aligned,
    ) -> Aligned:
        """Nodes and pods by name; the record of an equal draft in ``before`` is reused."""
        drafts = {id(row.draft): row.draft for row in placed}
        dimensions = dimensions_of(
            {name for draft in drafts.values() for name in draft.amounts},
            {name for draft in node_drafts.values() for name in draft.amounts},
        )
        keys = SchedulingKeys(drafts.values())
        numa = policy.plugin("numa")
        finished: dict[tuple[int, str], PodSpec] = {}
        interned: dict[PodSpec, PodSpec] = {}
        pods: dict[PodKey, Pod] = {}
        rows: dict[PodKey, PlacedFacts] = {}
        settled = before.pods if policy == before.policy else {}
        for row in placed:
            facts = row.facts
            key = keys.key(row.draft, facts.key.namespace, facts.labels)
            spec = finished.get((id(row.draft), key))
            if spec is None:
                fresh = row.draft.finished(dimensions, key, numa=numa)
                spec = interned.setdefault(fresh, before.specs.get(fresh, fresh))
                finished[id(row.draft), key] = spec
            pod = settled.get(facts.key)
            if pod is None or pod.spec is not spec or before.rows[facts.key] != row:
                pod = _pod(row, spec, policy)
            pods[facts.key] = pod
            rows[facts.key] = row
        known = before.nodes if dimensions == before.dimensions else {}
        nodes = {}
        for name in sorted(node_drafts):
            draft = node_drafts[name]
            last = known.get(name)
            nodes[name] = (
                last if last is not None and last[0] is draft else (draft, draft.finished(dimensions))
            )
        return cls(policy, dimensions, nodes, rows, pods, interned)


def _pod(row: PlacedFacts, spec: PodSpec, policy: Policy) -> Pod:
    facts = row.facts
    app, namespace = facts.labels.get("app"), facts.key.namespace
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
        # Every user may write a label, but only the binder can create pods in that namespace.
        reservation=not facts.owned
        and (namespace, app) == (policy.reservation_namespace, policy.reservation_app),
        scaling=(namespace, app) == (policy.scaling_namespace, _SCALING),
        claim_allocations=_NO_ALLOCATIONS if row.promise is None else row.promise.claim_allocations,
        numa_zones=row.numa_zones,
        started=facts.started,
        deadline_seconds=facts.deadline,
        revision=facts.revision,
    )
