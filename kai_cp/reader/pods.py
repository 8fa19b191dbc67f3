"""Resolves the status, place and pod group of pods against the rest of the snapshot (0.1, 2.6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kai_cp.json_types import Json
from kai_cp.reader.binds import Promise
from kai_cp.reader.classes import terms_of
from kai_cp.reader.facts import GROUP_ANNOTATION, SUBGROUP_LABEL, FactReader, PodFacts
from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.listed import ListedObjects
from kai_cp.reader.nodes import NodeDraft
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.numa import ZoneRows
from kai_cp.reader.podspec import SpecDraft
from kai_cp.reader.requests import readable_requests
from kai_cp.reader.shares import group_labels
from kai_cp.reader.subgroups import DEFAULT
from kai_cp_models.pods import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    MILLI,
    GpuKind,
    GpuRequest,
    GroupKey,
    PodKey,
    PodSpec,
    PodStatus,
)
from kai_cp_models.policy import Policy
from kai_cp_models.settings import Limits
from kai_cp_models.snapshot import PodGroup

_WAITING: Final = frozenset((PodStatus.PENDING, PodStatus.GATED))
_PHASES: Final = {"Succeeded": PodStatus.SUCCEEDED, "Failed": PodStatus.FAILED}


class PlacedFacts(NamedTuple):
    """A pod that stays in the snapshot: its facts, and what the rest of the snapshot adds to them."""

    facts: PodFacts
    draft: SpecDraft
    status: PodStatus
    group: GroupKey | None
    node: str | None
    promise: Promise | None = None
    gpu_groups: tuple[str, ...] = ()
    numa_zones: ZoneRows = ()


@dataclass
class PodResolver:
    """Decides for every pod whether it stays, and with which status and place.

    ``hidden``: by pod group and subgroup, the pods that run but could not be kept; they still count in the
    gang.
    """

    policy: Policy
    now: float
    stuck_seconds: float
    nodes: Container[str]
    left_out_nodes: Container[str]
    promises: Mapping[PodKey, Promise]
    groups: Mapping[GroupKey, PodGroup]
    notes: Notes
    before: Mapping[PodKey, PlacedFacts]
    """The result of the cluster's last reading."""
    hidden: Counter[tuple[GroupKey, str]] = field(default_factory=Counter)

    def resolve(self, objects: ListedObjects, reader: FactReader) -> list[PlacedFacts]:
        """All pods that stay, sorted by key. ``objects`` is used up, so that a pod that was read is freed."""
        found: list[PlacedFacts] = []
        for identity in sorted(objects):
            obj = objects.pop(identity)
            try:
                placed = self._placed(reader.read(obj, *identity))
            except Malformed as problem:
                self.notes.aside(title("Pod", identity), problem)
                placed = self._remnant(identity, obj)
            if placed is not None:
                found.append(placed)
        return found

    def status(self, facts: PodFacts, promise: Promise | None) -> PodStatus:
        """The status at snapshot time, in the order of the table of section 0.1."""
        if facts.phase == "Running":
            if facts.deleted is None:
                return PodStatus.RUNNING
            stuck = self.now - facts.deleted > self.stuck_seconds
            return PodStatus.STUCK_IN_RELEASING if stuck else PodStatus.RELEASING
        if facts.phase in ("Pending", ""):
            if facts.deleted is not None:
                return PodStatus.RELEASING
            if facts.node:
                return PodStatus.BOUND
            if promise is not None:
                return PodStatus.BINDING
            return PodStatus.GATED if facts.gated else PodStatus.PENDING
        return _PHASES.get(facts.phase, PodStatus.UNKNOWN)

    def _placed(self, facts: PodFacts) -> PlacedFacts | None:
        last = self.before.get(facts.key)
        return last if last is not None and self._settled(facts, last) else self._found(facts)

    def _settled(self, facts: PodFacts, last: PlacedFacts) -> bool:
        """Whether nothing that ``last`` depends on can have changed: object, promise, group, node or time."""
        return (
            last.facts is facts
            and last.promise is None
            and facts.key not in self.promises
            and facts.deleted is None
            and not facts.warnings
            and (last.group in self.groups if last.group is not None else not facts.group)
            and (last.node is None or last.node in self.nodes)
        )

    def _found(self, facts: PodFacts) -> PlacedFacts | None:
        known = self.groups.get(GroupKey(facts.key.namespace, facts.group)) if facts.group else None
        group = None if known is None else known.key
        promise = self.promises.get(facts.key)
        if promise is not None and not promise.meant_for(facts.uid):
            promise = None
        status = self.status(facts, promise)
        for warning in facts.warnings:
            self.notes.aside(title("Pod", facts.key), warning)
        if status not in ACTIVE_USED:
            if group is None and status in _WAITING and facts.scheduler == self.policy.scheduler_name:
                named = (
                    f"pod group {shown(facts.group)} does not exist"
                    if facts.group
                    else "no pod group is named"
                )
                self.notes.aside(title("Pod", facts.key), f"{named}, so nothing decides about the pod")
            return None if group is None else PlacedFacts(facts, facts.draft, status, group, None)
        node = facts.node or (promise.node if promise is not None else "")
        if node not in self.nodes and (node or status is not PodStatus.RELEASING):
            self._away(facts, node, status, group)
            return None
        if not node:
            return None if group is None else PlacedFacts(facts, facts.draft, status, group, None)
        gpu_groups: tuple[str, ...] = ()
        if facts.draft.spec.gpu.shares:
            gpu_groups = (promise.gpu_groups if promise is not None else ()) or facts.gpu_groups
        zones = facts.numa_zones or (promise.numa_zones if promise is not None else ())
        return PlacedFacts(facts, facts.draft, status, group, node, promise, gpu_groups, zones)

    def _away(self, facts: PodFacts, node: str, status: PodStatus, group: GroupKey | None) -> None:
        """A pod on a node outside the snapshot, which is normal for pods of other node pools."""
        if group is not None and status in ACTIVE_ALLOCATED:
            self.hidden[group, facts.subgroup or DEFAULT] += 1
        if group is None and (self.policy.node_pool_label or node in self.left_out_nodes):
            return
        problem = f"node {shown(node)} is not in the snapshot" if node else "a placed pod has no node"
        self.notes.aside(title("Pod", facts.key), f"spec.nodeName: {problem}")

    def _remnant(self, identity: Identity, obj: Json) -> PlacedFacts | None:
        """A stand-in that keeps the capacity of a placed pod that cannot be read; no decision touches it.

        Its readable requests count on its node. It belongs to no pod group, but still counts in its gang.
        """
        spec, status, metadata = (_object(obj.get(key)) for key in ("spec", "status", "metadata"))
        node = spec.get("nodeName")
        if not isinstance(node, str) or node not in self.nodes:
            return None
        if status.get("phase") not in ("Running", "Pending"):
            return None
        labels = {k: v for k, v in _object(metadata.get("labels")).items() if isinstance(v, str)}
        name = _object(metadata.get("annotations")).get(GROUP_ANNOTATION)
        group = GroupKey(identity[0], name) if isinstance(name, str) else None
        if group is not None and group in self.groups and metadata.get("deletionTimestamp") is None:
            self.hidden[group, labels.get(SUBGROUP_LABEL) or DEFAULT] += 1
        amounts = readable_requests(spec)
        shared = group_labels(labels)
        gpu = GpuRequest(devices=amounts.get("gpu", 0) // MILLI)
        if shared:
            amounts.pop("gpu", None)
            gpu = GpuRequest(GpuKind.FRACTION, len(shared))
        draft = SpecDraft(PodSpec((), gpu), amounts)
        scheduler = spec.get("schedulerName")
        facts = PodFacts(
            key=PodKey(*identity),
            uid="",
            draft=draft,
            phase="Running",
            deleted=None,
            node=node,
            gated=False,
            created=0.0,
            group="",
            subgroup="",
            labels=labels,
            order=(0, 0, 0, 0),
            nominated="",
            scheduler=scheduler if isinstance(scheduler, str) else "",
            owned=True,
            gpu_groups=shared,
            numa_zones=(),
        )
        return PlacedFacts(facts, draft, PodStatus.RUNNING, None, node, gpu_groups=shared)


def few_names(
    placed: Sequence[PlacedFacts], nodes: Mapping[str, NodeDraft], limits: Limits, notes: Notes
) -> list[PlacedFacts]:
    """The pods without those that name too many resources that no node has.

    Every name is a dimension of every vector, so each namespace has a limited number of them.
    """
    offered = {name for draft in nodes.values() for name in draft.amounts}
    most = limits.unknown_resources_per_namespace
    why = (
        f"spec.containers: the waiting pods of its namespace name more than {most} resources "
        "that no node has (limits.unknown_resources_per_namespace)"
    )
    return _few(placed, lambda draft: draft.amounts.keys() - offered, most, why, notes)


def few_terms(placed: Sequence[PlacedFacts], limits: Limits, notes: Notes) -> list[PlacedFacts]:
    """The pods without those that have too many terms about other pods.

    Every term is compared with the labels of every pod, so each namespace has a limited number of them.
    """
    most = limits.terms_per_namespace
    why = (
        f"spec.affinity: the waiting pods of its namespace have more than {most} different terms about other "
        "pods (limits.terms_per_namespace)"
    )
    return _few(placed, terms_of, most, why, notes)


def _few(
    placed: Sequence[PlacedFacts],
    things_of: Callable[[SpecDraft], AbstractSet[object]],
    most: int,
    why: str,
    notes: Notes,
) -> list[PlacedFacts]:
    """The pods without the waiting ones that bring their namespace above ``most``."""
    taken: dict[str, set[object]] = defaultdict(set)
    fine: dict[tuple[str, int], bool] = {}
    kept = []
    for row in placed:
        if row.status is PodStatus.PENDING:
            namespace = row.facts.key.namespace
            place = (namespace, id(row.draft))
            if place not in fine:
                fresh = things_of(row.draft) - taken[namespace]
                fine[place] = len(taken[namespace]) + len(fresh) <= most
                if fine[place]:
                    taken[namespace] |= fresh
            if not fine[place]:
                notes.aside(title("Pod", row.facts.key), why)
                continue
        kept.append(row)
    return kept


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
