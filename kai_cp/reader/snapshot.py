"""The raw KAI snapshot as a :class:`Snapshot`: parts are read in the order in which they rely on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kai_cp.reader.affinity import Namespaces
from kai_cp.reader.binds import read_promises
from kai_cp.reader.classes import SchedulingKeys
from kai_cp.reader.container import UnreadableSnapshot
from kai_cp.reader.facts import FactReader, ParseMemo
from kai_cp.reader.fields import Json, Malformed, shown, strings_at
from kai_cp.reader.groups import Priorities, read_groups
from kai_cp.reader.nodes import NodeDraft, count_dra_gpus, read_nodes
from kai_cp.reader.notes import Identity, Notes, raw_list, title, unique
from kai_cp.reader.pods import PlacedFacts, PodResolver
from kai_cp.reader.policy import read_policy, stuck_threshold_seconds
from kai_cp.reader.pools import in_pool
from kai_cp.reader.queues import read_queues
from kai_cp.reader.resources import dimensions_of
from kai_cp.reader.subgroups import lowered
from kai_cp.reader.topologies import read_topologies
from kai_cp_models.snapshot import (
    GroupKey,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    Policy,
    Queue,
    Snapshot,
)

RAW_LISTS: Final = (
    "resourceClaims",
    "resourceSlices",
    "deviceClasses",
    "persistentVolumes",
    "persistentVolumeClaims",
    "csiStorageCapacities",
    "storageClasses",
    "csiDrivers",
    "csiNodes",
    "nodeResourceTopologies",
    "podDisruptionBudgets",
    "namespaces",
)
"""Lists that are handed on as they are, for the rules that read them."""

_LISTS: Final = frozenset(
    (
        *RAW_LISTS,
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
_TOP: Final = frozenset(("config", "schedulerParams", "rawObjects", "discovery"))


def parse(
    raw: Mapping[str, Any],
    *,
    now: float,
    usage: Mapping[str, Any] | None = None,
    memo: ParseMemo | None = None,
) -> Snapshot:
    """The cluster that a raw snapshot shows at the instant ``now``.

    ``usage``: historic share of the cluster by queue name, ``{"cpu": 0..1, "memory": …, "gpu": …}``
    (3.4). ``memo``: see :class:`ParseMemo`. Objects that cannot be used are set aside, never raised;
    only something that is no snapshot at all raises :class:`UnreadableSnapshot`.
    """
    objects = raw.get("rawObjects") if isinstance(raw, Mapping) else None
    if not isinstance(objects, Mapping):
        raise UnreadableSnapshot("this is not a KAI snapshot: it has no rawObjects")
    notes = Notes()
    notes.unknown(raw, _TOP, "")
    notes.unknown(objects, _LISTS, "rawObjects")
    policy = read_policy(raw, notes)

    def cluster_scoped(kind: str, name: str) -> Mapping[Identity, Json]:
        return unique(raw_list(objects, name, notes), kind, name, notes, namespaced=False)

    def namespaced(kind: str, name: str) -> Mapping[Identity, Json]:
        return unique(raw_list(objects, name, notes), kind, name, notes, namespaced=True)

    handed_on = _handed_on(raw, objects, notes)
    fabrics = read_topologies(cluster_scoped("Topology", "topologies"), notes)
    raw_nodes = cluster_scoped("Node", "nodes")
    node_drafts = read_nodes(
        in_pool(raw_nodes, policy), policy, count_dra_gpus(handed_on.get("resourceSlices", ())), notes
    )
    queues = read_queues(in_pool(cluster_scoped("Queue", "queues"), policy), policy, usage, notes)
    groups = read_groups(
        in_pool(namespaced("PodGroup", "podGroups"), policy),
        policy,
        Priorities(cluster_scoped("PriorityClass", "priorityClasses"), notes),
        fabrics,
        notes,
    )
    _report_queues(groups, queues, notes)
    resolver = PodResolver(
        policy=policy,
        now=now,
        stuck_seconds=stuck_threshold_seconds(raw),
        nodes=node_drafts,
        left_out_nodes={name for _, name in raw_nodes},
        promises=read_promises(namespaced("BindRequest", "bindRequests"), node_drafts, notes),
        groups=groups,
        notes=notes,
    )
    raw_pods = unique(
        raw_list(objects, "pods", notes), "Pod", "pods", notes, namespaced=True, prefer=_has_node
    )
    reader = FactReader(ParseMemo() if memo is None else memo, _namespaces(handed_on))
    placed = resolver.resolve(raw_pods, reader)
    reader.close()
    dimensions, nodes, pods = _aligned(node_drafts, placed, policy)
    return Snapshot(
        now=now,
        dimensions=dimensions,
        nodes=nodes,
        queues=tuple(queues[name] for name in sorted(queues)),
        groups=tuple(_with_hidden(groups, resolver.hidden)),
        pods=pods,
        topologies=tuple(fabrics[name].topology for name in sorted(fabrics)),
        policy=policy,
        set_aside=notes.set_aside(),
        config_maps=frozenset(namespaced("ConfigMap", "configMaps")),
        extras={
            "raw": handed_on,
            "ignored": notes.ignored.total(),
            "ignored_fields": dict(sorted(notes.ignored.items())),
        },
    )


def _has_node(pod: Json) -> bool:
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _handed_on(raw: Json, objects: Json, notes: Notes) -> dict[str, Any]:
    """The lists that other parsers read, objects only, and the API server's ``discovery``."""
    found: dict[str, Any] = {}
    for name in RAW_LISTS:
        values = raw_list(objects, name, notes)
        kept = [value for value in values if isinstance(value, dict)]
        if len(kept) < len(values):
            notes.aside("snapshot", f"rawObjects.{name}: {len(values) - len(kept)} entries are not objects")
        if kept:
            found[name] = kept
    if isinstance(raw.get("discovery"), dict):
        found["discovery"] = raw["discovery"]
    return found


def _namespaces(handed_on: Mapping[str, Any]) -> Namespaces:
    """Labels by namespace; unreadable ones are left out (nothing can select them)."""
    found: dict[str, Mapping[str, str]] = {}
    for raw in handed_on.get("namespaces", ()):
        metadata = raw.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(name, str):
            try:
                labels = strings_at(metadata, "labels", "metadata")
            except Malformed:
                continue
            found[name] = {"kubernetes.io/metadata.name": name, **labels}
    return found


def _report_queues(groups: Mapping[GroupKey, PodGroup], queues: Mapping[str, Queue], notes: Notes) -> None:
    """Name the pod groups whose queue cannot run them; they stay, so that the plan says it too."""
    parents = {queue.parent for queue in queues.values()}
    for key, group in groups.items():
        if group.queue not in queues:
            notes.aside(title("PodGroup", key), f"spec.queue: queue {shown(group.queue)} does not exist")
        elif group.queue in parents:
            notes.aside(title("PodGroup", key), f"spec.queue: queue {shown(group.queue)} is not a leaf queue")


def _with_hidden(
    groups: Mapping[GroupKey, PodGroup], hidden: Counter[tuple[GroupKey, str]]
) -> Sequence[PodGroup]:
    """Groups by key; a minimum is met in part by pods that run where the snapshot does not show them."""
    counts: dict[GroupKey, dict[str, int]] = {}
    for (key, subgroup), count in hidden.items():
        counts.setdefault(key, {})[subgroup] = count
    return [
        replace(groups[key], root=lowered(groups[key].root, counts[key])) if key in counts else groups[key]
        for key in sorted(groups)
    ]


def _aligned(
    node_drafts: Mapping[str, NodeDraft], placed: Sequence[PlacedFacts], policy: Policy
) -> tuple[tuple[str, ...], tuple[Node, ...], tuple[Pod, ...]]:
    """Dimensions, and nodes and pods with vectors aligned to them. Equal specs are one object."""
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
