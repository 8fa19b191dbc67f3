"""Aligns nodes and pods with the dimensions of the snapshot; equal specs become one object."""

from __future__ import annotations

from collections.abc import Mapping, Set
from operator import attrgetter
from typing import Final, NamedTuple

from kai_cp.reader.classes import SchedulingKeys
from kai_cp.reader.memo import Memo
from kai_cp.reader.nodes import NodeDraft
from kai_cp.reader.notes import Identity
from kai_cp.reader.pods import PlacedFacts, PlacedPods
from kai_cp.reader.podspec import SpecDraft
from kai_cp.reader.resources import dimensions_of, names_in
from kai_cp_models.pods import Pod, PodSpec
from kai_cp_models.policy import Policy
from kai_cp_models.records.devices import ClaimAllocation
from kai_cp_models.snapshot import Node

_SCALING: Final = "scaling-pod"
_NO_ALLOCATIONS: Final[Mapping[str, ClaimAllocation]] = {}


class Aligned(NamedTuple):
    """The records of a snapshot, sorted by key."""

    dimensions: tuple[str, ...]
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]


class Aligner:
    """Makes the records of one reading after the other; equal drafts give the same records."""

    def __init__(self, *, kept: bool = True) -> None:
        self._nodes: Memo[str, NodeDraft, Node] = Memo(kept=kept)
        self._pods: Memo[Identity, PlacedFacts, Pod] = Memo(kept=kept, telling=attrgetter("status"))
        self._context: object = None
        self._finished: dict[tuple[int, str], tuple[SpecDraft, PodSpec]] = {}
        """Spec by ``id`` of a draft, which is held, and scheduling key."""
        self._specs: dict[PodSpec, PodSpec] = {}

    def align(
        self,
        node_drafts: dict[str, NodeDraft],
        placed: PlacedPods,
        policy: Policy,
        *,
        changed_nodes: Set[str],
    ) -> Aligned:
        """The records of nodes and pods. ``changed_nodes``: the nodes that differ from the last reading."""
        drafts = placed.drafts
        dimensions = dimensions_of(
            names_in(draft.amounts for draft in drafts.values()),
            names_in(draft.amounts for draft in node_drafts.values()),
        )
        keys = SchedulingKeys(drafts.values())
        numa = policy.plugin("numa")
        context = (policy, dimensions, keys.terms)
        before, same = len(self._finished), context == self._context
        self._context = context
        # Only specs whose drafts still exist, and none of another context.
        self._finished = {at: made for at, made in self._finished.items() if same and at[0] in drafts}
        forgotten = len(self._finished) < before

        def pod(_: Identity, row: PlacedFacts) -> tuple[Pod, bool]:
            draft, facts = row.draft, row.facts
            key = keys.key(draft, facts.key.namespace, facts.labels)
            found = self._finished.get((id(draft), key))
            if found is None:
                fresh = draft.finished(dimensions, key, numa=numa)
                found = self._finished[id(draft), key] = draft, self._specs.setdefault(fresh, fresh)
            return _pod(row, found[1], policy), True

        def node(_: str, draft: NodeDraft) -> tuple[Node, bool]:
            return draft.finished(dimensions), True

        nodes = self._nodes.read(node_drafts, dimensions, node, changed=changed_nodes)
        pods = self._pods.read(placed.rows, context, pod, changed=placed.changed)
        if forgotten:
            # Not earlier: a pod that equals its previous version keeps that spec, which others must share.
            self._specs = {spec: spec for _, spec in self._finished.values()}
        return Aligned(dimensions, tuple(nodes.values()), tuple(pods.values()))


def _pod(row: PlacedFacts, spec: PodSpec, policy: Policy) -> Pod:
    facts = row.facts
    app, namespace = facts.labels.get("app"), facts.key.namespace
    # Every user may write labels, but only the binder can create pods in that namespace.
    there = namespace == policy.reservation_namespace and app == policy.reservation_app
    reservation = there and not facts.owned
    # By position: there are very many pods, and names take twice as long.
    return Pod(
        facts.key,
        facts.uid,
        spec,
        row.status,
        facts.created,
        row.group,
        facts.subgroup,
        row.node,
        # A reservation pod holds a device for its sharers and is not one of them, whatever its annotations
        # say.
        () if reservation else row.gpu_groups,
        facts.order,
        facts.labels,
        facts.nominated or None,
        facts.scheduler == policy.scheduler_name,
        reservation,
        app == _SCALING and namespace == policy.scaling_namespace,
        _NO_ALLOCATIONS if row.promise is None else row.promise.claim_allocations,
        row.numa_zones,
        facts.started,
        facts.deadline,
        facts.revision,
    )
