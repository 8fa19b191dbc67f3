"""Resolves the status, place and pod group of pods against the rest of the snapshot (0.1, 2.6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from msgspec import structs

from kai_cp.json_types import Json
from kai_cp.keys import POD_GROUP, SUBGROUP
from kai_cp.reader.binds import Promise
from kai_cp.reader.classes import terms_of
from kai_cp.reader.document import parsed
from kai_cp.reader.facts import FactReader, PodFacts
from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.listed import ListedObjects
from kai_cp.reader.memo import Memo, versioned
from kai_cp.reader.nodes import NodeDraft
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp.reader.numa import ZoneRows
from kai_cp.reader.podspec import SpecDraft
from kai_cp.reader.pools import belongs
from kai_cp.reader.requests import readable_requests
from kai_cp.reader.resources import names_in
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
_LIVE: Final = frozenset(("Running", "Pending", ""))
MOST_GRACE_SECONDS: Final = 3000
"""The longest time that a pod evicted by the scheduler may take to end: a plan counts on its place (9.6)."""
_LONG_GRACE_SECONDS: Final = MOST_GRACE_SECONDS + 600
"""A pod whose end lies further ahead is stuck: nothing waits for its place. The difference allows for clocks
that differ."""
_PHASES: Final = {"Succeeded": PodStatus.SUCCEEDED, "Failed": PodStatus.FAILED}


class PlacedFacts(NamedTuple):
    """A pod that stays in the snapshot: its facts, and what the rest of the snapshot adds to them.

    The status comes first, because most changes are changes of status, and a comparison ends there.
    """

    status: PodStatus
    facts: PodFacts
    draft: SpecDraft
    group: GroupKey | None
    node: str | None
    promise: Promise | None = None
    gpu_groups: tuple[str, ...] = ()
    numa_zones: ZoneRows = ()


class PlacedPods(NamedTuple):
    """The pods that stay, sorted by key."""

    rows: dict[Identity, PlacedFacts]
    drafts: Mapping[int, SpecDraft]
    """Their drafts by ``id``: there are many pods and few drafts."""
    changed: AbstractSet[Identity] | None
    """The pods that differ from the last reading; None: not known."""

    @classmethod
    def of(cls, rows: dict[Identity, PlacedFacts], changed: AbstractSet[Identity] | None) -> PlacedPods:
        """The pods of ``rows``."""
        return cls(rows, {id(row.draft): row.draft for row in rows.values()}, changed)


class UnreadablePod(NamedTuple):
    """A pod whose object cannot be read, and why."""

    obj: Json
    problem: str


PlacedMemo = Memo[Identity, Any, PlacedFacts]
OpenPods = dict[Identity, tuple[Any, PodFacts | UnreadablePod]]
"""Pods that are examined in every reading: their objects with their facts; None for one that may change in
place."""


def has_gone(pods: PlacedPods, looked_at: OpenPods, identity: Identity, uid: str) -> bool:
    """Whether no pod of that name and UID runs or will run: claims are then taken from it. ``looked_at``: the
    pods that this reading examined, including those that do not stay.

    A pod that cannot be read may still run, and a pod that is being deleted runs until it has stopped.
    """
    row, opened = pods.rows.get(identity), looked_at.get(identity)
    found = opened[1] if opened is not None else None if row is None else row.facts
    if found is None or isinstance(found, UnreadablePod):
        return found is None
    return found.uid != uid or found.phase in _PHASES or (found.deleted is not None and not found.node)


@dataclass
class PodResolver:
    """Decides for every pod whether it stays, and with which status and place.

    ``known``: the ``looked_at`` of the last reading with this reader. ``hidden``: by pod group and subgroup,
    the pods that run but could not be kept; they still count in the gang. ``claims_away``: volume claims of
    pods on nodes outside the snapshot. ``other_groups``: pod groups of other node pools.
    """

    reader: FactReader
    known: OpenPods
    policy: Policy
    now: float
    stuck_seconds: float
    nodes: Container[str]
    left_out_nodes: Container[str]
    promises: Mapping[PodKey, Promise]
    groups: Mapping[Identity, PodGroup]
    other_groups: Container[Identity]
    notes: Notes
    hidden: Counter[tuple[GroupKey, str]] = field(default_factory=Counter)
    claims_away: set[PodKey] = field(default_factory=set)
    looked_at: OpenPods = field(default_factory=dict)

    def resolve(
        self,
        objects: ListedObjects,
        memo: PlacedMemo,
        context: object,
        *,
        left_groups: Collection[Identity],
        left_nodes: Collection[Identity],
    ) -> PlacedPods:
        """All pods that stay.

        ``context``: what the reader depends on besides the pods. ``left_groups`` and ``left_nodes``: those
        that the last reading had and this one lacks.

        A pod that stays depends only on itself, its promise, its group and its node. A pod that does not stay
        is examined in every reading.
        """
        again = list[Identity](self.promises)
        if left_groups:
            again += (key for key, row in memo.values.items() if row.group in left_groups)
        if left_nodes:
            again += (key for key, row in memo.values.items() if ("", row.node) in left_nodes)
        context = self.policy, context
        rows = memo.read(objects.unparsed, context, self._placed, changed=objects.changed, again=again)
        return PlacedPods.of(rows, memo.changed)

    def status(self, facts: PodFacts, promise: Promise | None) -> PodStatus:
        """The status at snapshot time, in the order of the table of section 0.1."""
        if facts.deleted is not None and facts.phase in _LIVE:
            # The capacity of a pod with a long grace period is not something that others should wait for.
            late = self.now - facts.deleted > self.stuck_seconds
            stuck = facts.node and (late or facts.deleted - self.now > _LONG_GRACE_SECONDS)
            return PodStatus.STUCK_IN_RELEASING if stuck else PodStatus.RELEASING
        if facts.phase == "Running":
            return PodStatus.RUNNING
        if facts.phase in _LIVE:
            if facts.node:
                return PodStatus.BOUND
            if promise is not None:
                return PodStatus.BINDING
            return PodStatus.GATED if facts.gated else PodStatus.PENDING
        return _PHASES.get(facts.phase, PodStatus.UNKNOWN)

    def _placed(self, identity: Identity, item: Any) -> tuple[PlacedFacts | None, bool]:
        facts, lasting = self._facts(identity, item)
        if isinstance(facts, UnreadablePod):
            self.notes.aside(title("Pod", identity), facts.problem)
            row, final = self._remnant(identity, facts.obj), False
        else:
            group = self.groups.get((identity[0], facts.group)) if facts.group else None
            promise = self.promises.get(facts.key) if self.promises else None
            row = self._found(facts, group, promise if promise and promise.meant_for(facts.uid) else None)
            final = (
                row is not None
                and promise is None
                and facts.deleted is None
                and not facts.warnings
                and (_sound(group, facts) if group else not (facts.group or self._ours(facts)))
            )
        if not (final and lasting):
            self.looked_at[identity] = item if lasting else None, facts
        return row, final and lasting

    def _facts(self, identity: Identity, item: Any) -> tuple[PodFacts | UnreadablePod, bool]:
        """What the pod states by itself, and whether that is final."""
        known = self.known.get(identity)
        if known is not None and known[0] is item:
            return known[1], True
        obj = parsed(item)
        try:
            return self.reader.read(obj, *identity), versioned(obj)
        except Malformed as problem:
            return UnreadablePod(obj, str(problem)), versioned(obj)

    def _found(self, facts: PodFacts, known: PodGroup | None, promise: Promise | None) -> PlacedFacts | None:
        group = None if known is None else known.key
        status = self.status(facts, promise)
        for warning in facts.warnings:
            self.notes.aside(title("Pod", facts.key), warning)
        if known is not None and not known.whole:
            if status not in ACTIVE_USED:
                why = "its pod group cannot be read, so nothing decides about the pod"
                self.notes.aside(title("Pod", facts.key), why)
                return None
            facts = structs.replace(facts, subgroup="")
        if status not in ACTIVE_USED:
            ours = self._ours(facts) and belongs(facts.labels, self.policy)
            if group is None and status in _WAITING and ours and not self._of_other_pool(facts):
                self._ungrouped(facts, "nothing decides about the pod")
            return None if group is None else PlacedFacts(status, facts, facts.draft, group, None)
        node = facts.node or (promise.node if promise is not None else "")
        if node not in self.nodes and (node or status is not PodStatus.RELEASING):
            self._away(facts, node, status, group)
            return None
        if not node:
            return None if group is None else PlacedFacts(status, facts, facts.draft, group, None)
        if group is None and status in ACTIVE_ALLOCATED and self._ours(facts):
            self._ungrouped(facts, "the pod counts in no queue, and nothing evicts it")
        elif known is not None and known.whole and status in ACTIVE_ALLOCATED and not _sound(known, facts):
            told = shown(facts.subgroup)
            label = f"metadata.labels[{SUBGROUP}]: {told} is not a subgroup of its pod group"
            self.notes.aside(title("Pod", facts.key), f"{label}, so no other pod group gets its place")
        gpu_groups: tuple[str, ...] = ()
        if facts.draft.spec.gpu.shares:
            gpu_groups = (promise.gpu_groups if promise is not None else ()) or facts.gpu_groups
        zones = facts.numa_zones or (promise.numa_zones if promise is not None else ())
        return PlacedFacts(status, facts, facts.draft, group, node, promise, gpu_groups, zones)

    def _ours(self, facts: PodFacts) -> bool:
        return facts.scheduler == self.policy.scheduler_name

    def _ungrouped(self, facts: PodFacts, so: str) -> None:
        why = "is of another node pool" if self._of_other_pool(facts) else "does not exist"
        named = f"pod group {shown(facts.group)} {why}" if facts.group else "no pod group is named"
        self.notes.aside(title("Pod", facts.key), f"{named}, so {so}")

    def _of_other_pool(self, facts: PodFacts) -> bool:
        """Whether the pod group of a pod that lacks the pool's label is decided by another shard."""
        return (facts.key.namespace, facts.group) in self.other_groups

    def _away(self, facts: PodFacts, node: str, status: PodStatus, group: GroupKey | None) -> None:
        """A pod on a node outside the snapshot, which is normal for pods of other node pools."""
        self.claims_away |= {PodKey(facts.key.namespace, name) for name in facts.draft.spec.volume_claims}
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
        name = _object(metadata.get("annotations")).get(POD_GROUP)
        group = GroupKey(identity[0], name) if isinstance(name, str) else None
        if group is not None and group in self.groups and metadata.get("deletionTimestamp") is None:
            self.hidden[group, labels.get(SUBGROUP) or DEFAULT] += 1
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
        return PlacedFacts(PodStatus.RUNNING, facts, draft, None, node, gpu_groups=shared)


def _sound(group: PodGroup, facts: PodFacts) -> bool:
    """Whether the subgroups of the group can be read, and the pod names one of them."""
    return group.whole and (facts.subgroup or DEFAULT) in group.root.scopes


def few_names(pods: PlacedPods, nodes: Mapping[str, NodeDraft], limits: Limits, notes: Notes) -> PlacedPods:
    """The pods without those that name too many resources that no node has.

    Every name is a dimension of every vector, so each namespace has a limited number of them.
    """
    offered = names_in(draft.amounts for draft in nodes.values())
    most = limits.unknown_resources_per_namespace
    why = (
        f"spec.containers: the pods of its namespace name more than {most} resources that no node has "
        "(limits.unknown_resources_per_namespace)"
    )

    def without(draft: SpecDraft) -> SpecDraft:
        return replace(draft, amounts={name: n for name, n in draft.amounts.items() if name in offered})

    return _few(pods, lambda draft: draft.amounts.keys() - offered, without, most, why, notes=notes)


def few_terms(pods: PlacedPods, limits: Limits, notes: Notes) -> PlacedPods:
    """The pods without those that have too many terms about other pods.

    Every term is compared with the labels of pods and counted in every domain, so each namespace has a
    limited number of them.
    """
    most = limits.terms_per_namespace
    why = (
        f"spec.affinity: the pods of its namespace have more than {most} different terms about other pods "
        "(limits.terms_per_namespace)"
    )

    def without(draft: SpecDraft) -> SpecDraft:
        return replace(draft, spec=replace(draft.spec, pod_affinity=(), pod_anti_affinity=(), spread=()))

    return _few(pods, terms_of, without, most, why, notes=notes)


def _few(
    pods: PlacedPods,
    things_of: Callable[[SpecDraft], AbstractSet[object]],
    without: Callable[[SpecDraft], SpecDraft],
    most: int,
    why: str,
    *,
    notes: Notes,
) -> PlacedPods:
    """The pods without those that bring their namespace above ``most``.

    Those with a place come first, and stay ``without`` what they bring.
    """
    if len(set[object]().union(*map(things_of, pods.drafts.values()))) <= most:
        return pods
    taken: dict[str, set[object]] = defaultdict(set)
    fine: dict[tuple[str, int], SpecDraft | None] = {}
    changed: dict[Identity, PlacedFacts | None] = {}
    for key, row in sorted(pods.rows.items(), key=lambda item: item[1].status not in ACTIVE_USED):
        namespace, stays = row.facts.key.namespace, row.status in ACTIVE_USED
        place = (namespace, id(row.draft))
        if place not in fine:
            fresh = things_of(row.draft) - taken[namespace]
            fits = len(taken[namespace]) + len(fresh) <= most
            taken[namespace] |= fresh if fits else set()
            fine[place] = row.draft if fits else without(row.draft) if stays else None
        if (draft := fine[place]) is not row.draft:
            notes.aside(title("Pod", row.facts.key), f"{why}; they are not looked at" if stays else why)
            changed[key] = row._replace(draft=draft) if stays and draft is not None else None
    rows = ((key, changed.get(key, row)) for key, row in pods.rows.items())
    return PlacedPods.of({key: row for key, row in rows if row is not None}, None)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
