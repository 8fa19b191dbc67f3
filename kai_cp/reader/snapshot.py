"""The raw KAI snapshot as a :class:`Snapshot`: parts are read in the order in which they rely on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.affinity import Namespaces
from kai_cp.reader.align import Aligner
from kai_cp.reader.binds import read_promises
from kai_cp.reader.container import UnreadableSnapshot
from kai_cp.reader.document import OBJECTS
from kai_cp.reader.facts import FactReader, PodFacts
from kai_cp.reader.fields import Malformed, shown, strings_at
from kai_cp.reader.groups import GroupsMemo, read_groups, read_priorities
from kai_cp.reader.listed import NOTHING_LISTED, ListedObjects, ListMemo, raw_list, unique
from kai_cp.reader.memo import Memo
from kai_cp.reader.nodes import NodeDraft, NodesMemo, count_dra_gpus, read_nodes
from kai_cp.reader.notes import IGNORED, Identity, Notes, title
from kai_cp.reader.objects import KINDS, Lists, lists_of, read_objects
from kai_cp.reader.pods import (
    OpenPods,
    PlacedMemo,
    PlacedPods,
    PodResolver,
    few_names,
    few_terms,
    has_gone,
)
from kai_cp.reader.podspec import SpecDraft
from kai_cp.reader.policy import read_policy, stuck_threshold_seconds
from kai_cp.reader.pools import in_pool
from kai_cp.reader.queues import read_queues
from kai_cp.reader.recorded_usage import FETCHED_AT, recorded_usage
from kai_cp.reader.subgroups import lowered
from kai_cp.reader.topologies import TopologyDraft, read_topologies, report_outside
from kai_cp.reader.users import divided
from kai_cp_models.collection import no_collection
from kai_cp_models.extras import Extras
from kai_cp_models.pods import GroupKey
from kai_cp_models.policy import Policy
from kai_cp_models.queries.reading import completed
from kai_cp_models.records.judging import Judging, Paid
from kai_cp_models.settings import Limits
from kai_cp_models.snapshot import Derived, PodGroup, Queue, Snapshot

_FEWEST_SPECS: Final = 1_000
"""Up to this many specs that no pod has any more are kept, in addition to those in use."""

LISTS: Final = frozenset(
    (
        *KINDS,
        "pods",
        "nodes",
        "queues",
        "podGroups",
        "bindRequests",
        "priorityClasses",
        "configMaps",
        "topologies",
    )
)
"""Lists of ``rawObjects`` that are read."""
PARTS: Final = frozenset(("config", "schedulerParams", "rawObjects", "discovery", "usage"))
"""Parts of a snapshot that are known."""


class ParseMemo:
    """Remembers the contents of objects, so that an unchanged object is not read again.

    Give the same memo to every :func:`parse` of one cluster, in one thread. ``kept``: whether there will be
    another reading; if not, specs are shared and nothing else is remembered.
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._kept = kept
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self.specs: dict[bytes, SpecDraft] = {}
        self.most_specs = _FEWEST_SPECS
        """With more specs than this, those of pods that have gone are forgotten."""
        self.reader: tuple[Namespaces, Limits] | None = None
        """What specs and the facts of pods depend on, apart from the pods."""
        self.lists: dict[str, ListMemo] | None = {} if self._kept else None
        self.nodes: NodesMemo = Memo(kept=self._kept)
        self.groups: GroupsMemo = Memo(kept=self._kept, telling=attrgetter("last_start"))
        self.open_pods: OpenPods = {}
        self.placed: PlacedMemo = Memo(kept=self._kept)
        self.records = Aligner(kept=self._kept)
        self.selectors = Paid()
        self.derived = Derived()


def parse(
    raw: Mapping[str, Any],
    *,
    now: float,
    usage: Mapping[str, Any] | None = None,
    memo: ParseMemo | None = None,
    limits: Limits | None = None,
    judged: bool = True,
    user_label: str = "",
    use_up: bool = False,
) -> Snapshot:
    """The cluster that a raw snapshot shows at the instant ``now``.

    ``usage``: historic share of the cluster by queue name, ``{"cpu": 0..1, "memory": …, "gpu": …}``
    (3.4). ``memo``: see :class:`ParseMemo`. ``limits``: how much objects may cost. ``judged``: whether
    anything is to be decided on the snapshot; if not, no selector of a claim is evaluated.
    ``user_label``: label of pod groups that names their user (``users.label``); "": none does.
    ``use_up``: empty ``rawObjects`` of ``raw`` once all objects were read; for callers that are done with it.
    Objects that cannot be used are set aside, never raised; only something that is not a snapshot at all
    raises :class:`UnreadableSnapshot`.
    """
    with no_collection():
        memory = ParseMemo(kept=False) if memo is None else memo
        limits = limits or Limits()
        try:
            found = _parse(raw, now, usage, memory, limits, user_label=user_label, use_up=use_up)
        except BaseException:
            # Its parts may come from different readings.
            memory.forget()
            raise
        return completed(found, Judging(limits, memory.selectors, judged))


@dataclass(frozen=True, slots=True)
class _Drafts:
    """What the objects of a snapshot state, before its dimensions are known."""

    policy: Policy
    topologies: Mapping[str, TopologyDraft]
    nodes: dict[str, NodeDraft]
    queues: Mapping[str, Queue]
    groups: Sequence[PodGroup]
    pods: PlacedPods
    config_maps: frozenset[Identity]
    extras: Extras


def _parse(
    raw: Mapping[str, Any],
    now: float,
    usage: Mapping[str, Any] | None,
    memo: ParseMemo,
    limits: Limits,
    *,
    user_label: str,
    use_up: bool,
) -> Snapshot:
    notes = Notes()
    drafts = _drafts(raw, now, usage, memo, limits, notes=notes, user_label=user_label)
    if use_up:
        raw[OBJECTS].clear()
    records = memo.records.align(
        drafts.nodes,
        drafts.pods,
        drafts.policy,
        changed_nodes={name for _, name in memo.nodes.changed},
    )
    report_outside(drafts.topologies, records.nodes, notes)
    return Snapshot(
        now=now,
        dimensions=records.dimensions,
        nodes=records.nodes,
        queues=tuple(drafts.queues[name] for name in sorted(drafts.queues)),
        groups=tuple(drafts.groups),
        pods=records.pods,
        topologies=tuple(drafts.topologies[name].topology for name in sorted(drafts.topologies)),
        policy=drafts.policy,
        set_aside=notes.set_aside(),
        config_maps=drafts.config_maps,
        extras=drafts.extras.having(IGNORED, dict(sorted(notes.ignored.items()))),
        derived=memo.derived,
    )


def _drafts(
    raw: Mapping[str, Any],
    now: float,
    usage: Mapping[str, Any] | None,
    memo: ParseMemo,
    limits: Limits,
    *,
    notes: Notes,
    user_label: str,
) -> _Drafts:
    objects = _objects(raw, notes)
    policy = read_policy(raw, notes)
    recorded, fetched_at = recorded_usage(raw) if usage is None else (usage, None)
    cluster_scoped = partial(_listed, objects, notes, memo.lists, namespaced=False)
    namespaced = partial(_listed, objects, notes, memo.lists, namespaced=True)
    lists: Lists = lists_of(objects, notes, memo.lists)
    fabrics = read_topologies(cluster_scoped("Topology", "topologies"), notes)
    raw_nodes = cluster_scoped("Node", "nodes")
    dra_gpus = count_dra_gpus(lists.get("resourceSlices", NOTHING_LISTED))
    all_nodes = {name for _, name in raw_nodes}
    node_drafts = read_nodes(in_pool(raw_nodes, policy), policy, dra_gpus, notes, memo.nodes)
    lists = _of_our_nodes(lists, all_nodes - node_drafts.keys())
    queues = read_queues(in_pool(cluster_scoped("Queue", "queues"), policy), policy, recorded, notes)
    raw_groups = namespaced("PodGroup", "podGroups")
    our_groups = in_pool(raw_groups, policy)
    other_groups = raw_groups.keys() - our_groups.keys()
    groups = read_groups(
        our_groups,
        policy,
        read_priorities(cluster_scoped("PriorityClass", "priorityClasses"), notes),
        fabrics,
        notes,
        now=now,
        memo=memo.groups,
        limits=limits,
        user_label=user_label,
    )
    _report_queues(groups, queues, notes)
    if user_label:
        groups, queues = divided(groups, queues, notes)
    raw_pods, namespaces = namespaced("Pod", "pods", prefer=_has_node), _namespaces(lists, notes)
    if memo.reader != (namespaces, limits):
        # Namespace selectors are resolved inside the specs.
        memo.specs, memo.open_pods, memo.reader = {}, {}, (namespaces, limits)
    resolver = PodResolver(
        reader=FactReader(namespaces, memo.specs, limits),
        known=memo.open_pods,
        policy=policy,
        now=now,
        stuck_seconds=stuck_threshold_seconds(raw),
        nodes=node_drafts,
        left_out_nodes=all_nodes,
        promises=read_promises(namespaced("BindRequest", "bindRequests"), node_drafts, notes),
        groups=groups,
        other_groups=other_groups,
        notes=notes,
    )
    pods = _pods(raw_pods, resolver, memo)
    gone = partial(has_gone, pods, resolver.looked_at)
    extras = read_objects(lists, node_drafts.keys(), policy, notes, gone, away=resolver.claims_away)
    return _Drafts(
        policy,
        fabrics,
        node_drafts,
        queues,
        _with_hidden(groups, resolver.hidden),
        few_terms(few_names(pods, node_drafts, limits, notes), limits, notes),
        frozenset(namespaced("ConfigMap", "configMaps")),
        extras.having(FETCHED_AT, fetched_at),
    )


def _pods(objects: ListedObjects, resolver: PodResolver, memo: ParseMemo) -> PlacedPods:
    """The pods that stay."""
    groups = memo.groups.values
    changed = {key: groups[key] for key in memo.groups.changed if key in groups}
    torn = {key for key, one in changed.items() if not (one.whole and one.root.plain)}
    pods = resolver.resolve(
        objects,
        memo.placed,
        memo.reader,
        left_groups=memo.groups.left | torn,
        left_nodes=memo.nodes.left,
    )
    memo.open_pods = resolver.looked_at
    if len(memo.specs) > memo.most_specs:
        # Many pods name objects of their own, and so have a spec that no other pod has.
        said = (facts for _, facts in memo.open_pods.values() if isinstance(facts, PodFacts))
        there = pods.drafts.keys() | {id(facts.draft) for facts in said}
        memo.specs = {key: draft for key, draft in memo.specs.items() if id(draft) in there}
        memo.most_specs = 2 * len(memo.specs) + _FEWEST_SPECS
    return pods


def _objects(raw: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    """The lists of objects; raises ``UnreadableSnapshot`` where there are none."""
    objects = raw.get(OBJECTS) if isinstance(raw, Mapping) else None
    if not isinstance(objects, Mapping):
        raise UnreadableSnapshot("this is not a KAI snapshot: it has no rawObjects")
    notes.unknown(raw, PARTS, "")
    notes.unknown(objects, LISTS, "rawObjects")
    return objects


def _listed(
    objects: Mapping[str, Any],
    notes: Notes,
    lists: dict[str, ListMemo] | None,
    kind: str,
    name: str,
    *,
    namespaced: bool,
    prefer: Callable[[Json], bool] = lambda obj: True,
) -> ListedObjects:
    """The objects of one list by what identifies them."""
    listed = raw_list(objects, name, notes)
    memo = None if lists is None else lists.setdefault(name, ListMemo())
    return unique(listed, kind, name, notes, namespaced=namespaced, prefer=prefer, memo=memo)


def _of_our_nodes(lists: Lists, left_out: Set[str]) -> Lists:
    """The lists without the slices and zones of nodes that exist but are left out; nothing is wrong with
    those."""
    if not left_out:
        return lists

    def of_ours(identity: Identity, obj: Json) -> bool:
        spec = obj.get("spec")
        return not (isinstance(spec, dict) and str(spec.get("nodeName")) in left_out)

    found = dict(lists)
    if "resourceSlices" in found:
        found["resourceSlices"] = found["resourceSlices"].where(of_ours)
    if "nodeResourceTopologies" in found:
        found["nodeResourceTopologies"] = found["nodeResourceTopologies"].where(
            lambda identity, _: identity[1] not in left_out
        )
    return found


def _has_node(pod: Json) -> bool:
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _namespaces(lists: Lists, notes: Notes) -> Namespaces:
    """Labels by namespace; unreadable ones are left out (nothing can select them)."""
    found: dict[str, Mapping[str, str]] = {}
    for (_, name), raw in lists.get("namespaces", NOTHING_LISTED).items():
        try:
            labels = strings_at(raw["metadata"], "labels", "metadata")
        except Malformed as problem:
            notes.aside(title("Namespace", ("", name)), problem)
            continue
        found[name] = {"kubernetes.io/metadata.name": name, **labels}
    return found


def _report_queues(groups: Mapping[Identity, PodGroup], queues: Mapping[str, Queue], notes: Notes) -> None:
    """Name the pod groups whose queue cannot run them. They stay in the snapshot, so that the plan names them
    too."""
    parents = {queue.parent for queue in queues.values()}
    if {group.queue for group in groups.values()} <= queues.keys() - parents:
        return
    for key, group in groups.items():
        if group.queue not in queues:
            notes.aside(title("PodGroup", key), f"spec.queue: queue {shown(group.queue)} does not exist")
        elif group.queue in parents:
            notes.aside(title("PodGroup", key), f"spec.queue: queue {shown(group.queue)} is not a leaf queue")


def _with_hidden(
    groups: Mapping[Identity, PodGroup], hidden: Counter[tuple[GroupKey, str]]
) -> Sequence[PodGroup]:
    """Groups by key; running pods that the snapshot does not show count toward the minimum."""
    counts: dict[Identity, dict[str, int]] = {}
    for (key, subgroup), count in hidden.items():
        counts.setdefault(key, {})[subgroup] = count
    if not counts:
        return list(groups.values())
    return [
        replace(group, root=lowered(group.root, counts[key])) if key in counts else group
        for key, group in groups.items()
    ]
