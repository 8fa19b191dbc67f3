"""The operations of explain and what-if in their JSON form, and the change that each makes to a snapshot.

A fix of explain and a question of what-if are lists of these operations, applied in order. Names are
``namespace/name``; a leading ``podgroup/`` or ``pod/`` is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kai_cp.decisions import from_rfc3339, rfc3339
from kai_cp.explain.draft import BadOperation, Draft, clone, nearest
from kai_cp.explain.places import end_groups, end_pods, promised, restart
from kai_cp.explain.planned import PARTS, planned, state_requests
from kai_cp.explain.raw import (
    alive,
    group_of,
    holds,
    key_of,
    known_ends,
    metadata,
    name_of,
    spec_of,
    subgroup_of,
)
from kai_cp.json_types import Object
from kai_cp.keys import GPU_FRACTION, QUEUE, SUBGROUP
from kai_cp.reader.policy import stuck_threshold_seconds
from kai_cp.reader.times import seconds_of
from kai_cp_models.policy import POLICY_ACTIONS, Policy
from kai_cp_models.snapshot import Shares

QUEUE_AMOUNTS: Final = ("quota", "limit", "overQuotaWeight")
QUEUE_FIELDS: Final = ("priority", "preemptMinRuntime", "reclaimMinRuntime")
QUEUE_RESOURCES: Final = Shares._fields
"""In the order of amounts."""
PLURALS: Final = {
    "ConfigMap": "configMaps",
    "PersistentVolumeClaim": "persistentVolumeClaims",
    "Queue": "queues",
    "Pod": "pods",
    "PodGroup": "podGroups",
    "PriorityClass": "priorityClasses",
    "Topology": "topologies",
}
ADDABLE: Final = sorted({*PLURALS, *PARTS})
"""Kinds of objects that may be added. For a workload its pods are added, in the pod groups that they get."""
MOST_COPIES: Final = 10_000
"""Nodes that one operation adds at most."""
MOST_OPERATIONS: Final = 1_000
MOST_OBJECTS: Final = 10_000
"""Objects that are added at once."""
_MOST_AMOUNT: Final = 1e15
"""Largest amount of a queue: a petabyte in bytes, and far beyond any cluster in other units."""
_MOST_WHOLE: Final = 2**31 - 1
"""Largest priority and minimum: what the API server takes."""
_MOVED_GROUPS: Final = 16
"""``maxNumberConsolidationPreemptees`` if an operation switches consolidation on and the snapshot names
none."""
_HOSTNAME: Final = "kubernetes.io/hostname"


def applied(raw: Mapping[str, Any], ops: Sequence[Object], now: float, *, at_once: bool = False) -> Draft:
    """The snapshot and the time after ``ops``; raises ``BadOperation``. ``raw`` is not changed.

    ``at_once``: devices of claims stay allocated, because Kubernetes frees them some time after their pods
    ended. A fix must help without those devices.
    """
    if len(ops) > MOST_OPERATIONS:
        raise BadOperation(f"{len(ops):,} operations; at most {MOST_OPERATIONS:,} are accepted at once")
    copies = sum(op["count"] for op in ops if isinstance(op, dict) and isinstance(op.get("count"), int))
    if copies > MOST_COPIES:
        raise BadOperation(f"{copies:,} nodes; at most {MOST_COPIES:,} are added at once")
    objects = sum(len(op["objects"]) for op in ops if isinstance(op, dict) and _listed(op, "objects"))
    if objects > MOST_OBJECTS:
        raise BadOperation(f"{objects:,} objects; at most {MOST_OBJECTS:,} are added at once")
    draft = Draft(raw, now, frees_devices=not at_once)
    for op in ops:
        what = op.get("op") if isinstance(op, dict) else None
        run = _OPERATIONS.get(str(what))
        if run is None:
            raise BadOperation(f"there is no operation {what!r}{nearest(str(what), list(KNOWN))}")
        try:
            run(draft, op)
        except BadOperation:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as problem:
            raise BadOperation(f"{what}: {type(problem).__name__}: {problem}") from None
    return draft


def beside_the_present(raw: Mapping[str, Any], ops: Sequence[Object]) -> list[Object]:
    """The operations as documents show them: a change of a queue's field has what it ``was``, where that was
    stated."""
    queues = {name_of(queue): queue for queue in raw["rawObjects"].get("queues") or []}
    told = []
    for op in ops:
        was: Any = None
        if op["op"] == "set-queue":
            was = spec_of(queues[op["queue"]])
            for key in ("resources", op["resource"], op["field"]) if "resource" in op else (op["field"],):
                was = was.get(key) if isinstance(was, dict) else None
        told.append(op if was is None else {**op, "was": was})
    return told


def _listed(op: Object, name: str) -> bool:
    return isinstance(op.get(name), list)


def number_of(op: Object, name: str, most: float) -> float:
    """A number of an operation, between ``-most`` and ``most``; anything else is a ``BadOperation``."""
    value = op[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -most <= value <= most:
        raise BadOperation(f"{op['op']}: {name} is not a number from {-most:g} to {most:g}")
    return value


def path_of(name: Any) -> str:
    """``namespace/name`` of a pod group or pod; the kind in front and the namespace may be left out.

    Raises ``BadOperation`` for any other text.
    """
    if not isinstance(name, str) or not name:
        raise BadOperation(f"{name!r} is not a name")
    plain = name.removeprefix("podgroup/").removeprefix("pod/")
    return plain if "/" in plain else f"default/{plain}"


# --- time ------------------------------------------------------------------------------------------


def _at(draft: Draft, op: Object) -> None:
    before, draft.now = draft.now, from_rfc3339(op["now"])
    end_pods(draft, {key_of(pod) for pod in draft.objects("pods") if _has_left(draft, pod, before)})
    ended = {group for group, end in known_ends(draft.raw).items() if end is not None and end <= draft.now}
    if ended:
        end_groups(draft, ended)


def _has_left(draft: Draft, pod: Object, before: float) -> bool:
    """Whether a pod that was leaving before, and was not stuck, is gone now."""
    told = metadata(pod).get("deletionTimestamp")
    if not isinstance(told, str):
        return False
    try:
        until = seconds_of(told)
    except (ValueError, OverflowError):
        return False
    return before - until <= stuck_threshold_seconds(draft.raw) and until <= draft.now


# --- nodes -----------------------------------------------------------------------------------------


def _add_nodes(draft: Draft, op: Object) -> None:
    like, count = str(op["like"]), int(op["count"])
    if not 0 < count <= MOST_COPIES:
        raise BadOperation(f"add-nodes: {count:,} copies of {like}; 1 to {MOST_COPIES:,} may be added")
    node = draft.find("nodes", "node", like)
    pods = [pod for pod in draft.objects("pods") if spec_of(pod).get("nodeName") == like and _of_daemon(pod)]
    names = {name_of(item) for item in draft.objects("nodes")}
    first = 1
    while f"{like}-copy-{first}" in names:
        first += 1
    for i in range(first, first + count):
        name = f"{like}-copy-{i}"
        draft.list_of("nodes").append(_copied_node(node, name, i))
        for pod in pods:
            twin = clone(pod)
            twin["metadata"]["name"] = f"{name_of(pod)}-copy-{i}"
            twin["metadata"]["uid"] = f"{metadata(pod).get('uid') or ''}c{i}"
            twin["spec"]["nodeName"] = name
            draft.list_of("pods").append(twin)
        _copy_devices(draft, like, name, i)


def _of_daemon(pod: Object) -> bool:
    owners = metadata(pod).get("ownerReferences") or []
    return any(isinstance(owner, dict) and owner.get("kind") == "DaemonSet" for owner in owners)


def _copied_node(node: Object, name: str, i: int) -> Object:
    twin: Object = clone(node)
    twin["metadata"]["name"] = name
    twin["metadata"]["uid"] = f"{str(metadata(node).get('uid') or '')[:-3]}{i:03d}"[:36] + "c"
    labels = twin["metadata"].setdefault("labels", {})
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = name
    twin["spec"].pop("unschedulable", None)
    return twin


def _copy_devices(draft: Draft, like: str, name: str, i: int) -> None:
    """NUMA zones, all free, and ResourceSlices of a copied node."""
    for zones in [item for item in draft.objects("nodeResourceTopologies") if name_of(item) == like]:
        twin = clone(zones)
        twin["metadata"] |= {"name": name, "uid": f"{metadata(zones).get('uid') or ''}c{i}"}
        for zone in twin.get("zones") or []:
            for resource in zone.get("resources") or []:
                resource["available"] = resource["allocatable"]
        draft.list_of("nodeResourceTopologies").append(twin)
    for cut in [item for item in draft.objects("resourceSlices") if spec_of(item).get("nodeName") == like]:
        twin = clone(cut)
        uid = f"{metadata(cut).get('uid') or ''}c{i}"
        twin["metadata"] |= {"name": f"{name_of(cut)}-copy-{i}", "uid": uid}
        twin["spec"]["nodeName"] = name
        twin["spec"].setdefault("pool", {})["name"] = name
        draft.list_of("resourceSlices").append(twin)


def _cordon(draft: Draft, op: Object) -> None:
    for name in op["nodes"]:
        draft.edit("nodes", "node", name)["spec"]["unschedulable"] = True


def _uncordon(draft: Draft, op: Object) -> None:
    for name in op["nodes"]:
        draft.edit("nodes", "node", name)["spec"].pop("unschedulable", None)


def _drain(draft: Draft, op: Object) -> None:
    _cordon(draft, op)
    names = set(op["nodes"])
    coming = promised(draft, names)

    def leaves(pod: Object) -> bool:
        """Pods that are being deleted go on leaving."""
        node = spec_of(pod).get("nodeName")
        there = node in names or (not node and key_of(pod) in coming)
        return there and bool(group_of(pod)) and alive(pod) and not metadata(pod).get("deletionTimestamp")

    restart(draft, {key_of(pod) for pod in draft.objects("pods") if leaves(pod)})


def _remove_nodes(draft: Draft, op: Object) -> None:
    _drain(draft, op)
    names = set(op["nodes"])
    draft.keep("nodes", lambda node: name_of(node) not in names)
    end_pods(draft, {key_of(pod) for pod in draft.objects("pods") if spec_of(pod).get("nodeName") in names})


def _untaint(draft: Draft, op: Object) -> None:
    node = draft.edit("nodes", "node", op["node"])
    taints = spec_of(node).get("taints") or []
    if not any(taint["key"] == op["key"] for taint in taints):
        keys = [str(taint["key"]) for taint in taints]
        raise BadOperation(f"node {op['node']} has no taint {op['key']}{nearest(str(op['key']), keys)}")
    node["spec"]["taints"] = [taint for taint in taints if taint["key"] != op["key"]]


# --- queues and actions ----------------------------------------------------------------------------


def _set_queue(draft: Draft, op: Object) -> None:
    spec = draft.edit("queues", "queue", op["queue"])["spec"]
    name = op["field"]
    if name in QUEUE_AMOUNTS:
        if op.get("resource") not in QUEUE_RESOURCES:
            raise BadOperation(
                f"set-queue: there is no resource {op.get('resource')}; "
                f"the resources are {', '.join(QUEUE_RESOURCES)}"
            )
        empty = dict.fromkeys(QUEUE_AMOUNTS, 0)
        spec.setdefault("resources", {}).setdefault(op["resource"], empty)[name] = number_of(
            op, "value", _MOST_AMOUNT
        )
    elif name in QUEUE_FIELDS:
        spec[name] = op["value"]
    else:
        known = ("quota", "limit", "weight", *QUEUE_FIELDS)
        raise BadOperation(f"set-queue: there is no field {name}; the fields are {', '.join(known)}")


def _enable_action(draft: Draft, op: Object) -> None:
    _switch(draft, op["action"], on=True)


def _disable_action(draft: Draft, op: Object) -> None:
    _switch(draft, op["action"], on=False)


def _switch(draft: Draft, action: str, *, on: bool) -> None:
    if action not in POLICY_ACTIONS:
        raise BadOperation(f"there is no action {action}{nearest(action, list(POLICY_ACTIONS))}")
    config = draft.section("config")
    have = {part.strip() for part in str(config.get("actions") or "").split(",")}
    have = have | {action} if on else have - {action}
    config["actions"] = ", ".join(known for known in POLICY_ACTIONS if known in have)
    if on and action == "consolidation":
        params = draft.section("schedulerParams")
        if not params.get("maxNumberConsolidationPreemptees"):
            params["maxNumberConsolidationPreemptees"] = _MOVED_GROUPS


# --- workloads -------------------------------------------------------------------------------------


def _group(draft: Draft, op: Object) -> Object:
    return draft.edit("podGroups", "podgroup", path_of(op["podGroup"]))


def _part(group: Object, op: Object) -> Object:
    """The pod group's spec, or the subgroup that the operation names."""
    if not op.get("subGroup"):
        return dict_at(group, "spec")
    parts = spec_of(group).get("subGroups") or []
    for part in parts:
        if part["name"] == op["subGroup"]:
            found: Object = part
            return found
    raise BadOperation(f"podgroup {key_of(group)} has no subgroup {op['subGroup']}")


def dict_at(item: Object, key: str) -> Object:
    """The object under ``key``, which is created if it is missing."""
    found: Object = item.setdefault(key, {})
    return found


def _set_priority(draft: Draft, op: Object) -> None:
    value = int(number_of(op, "value", _MOST_WHOLE))
    name = f"kai-cp-{value}"
    if all(name_of(item) != name for item in draft.objects("priorityClasses")):
        draft.list_of("priorityClasses").append(
            {"metadata": {"name": name, "uid": f"class-{value}"}, "value": value}
        )
    _group(draft, op)["spec"]["priorityClassName"] = name
    key = path_of(op["podGroup"])
    for pod in draft.edit_all("pods", lambda pod: group_of(pod) == key):
        pod["spec"] |= {"priority": value, "priorityClassName": name}


def _set_preemptibility(draft: Draft, op: Object) -> None:
    _group(draft, op)["spec"]["preemptibility"] = op["value"]


def _set_topology(draft: Draft, op: Object) -> None:
    part = _part(_group(draft, op), op)
    if op.get("level") is None:
        part.pop("topologyConstraint", None)
        return
    constraint = part.get("topologyConstraint")
    if not constraint:
        raise BadOperation(f"podgroup {path_of(op['podGroup'])} names no topology, so it can have no level")
    named = [item for item in draft.objects("topologies") if name_of(item) == constraint.get("topology")]
    levels = [str(level["nodeLabel"]) for item in named for level in spec_of(item)["levels"]]
    if named and op["level"] not in levels:
        raise BadOperation(
            f"topology {constraint['topology']} has no level {op['level']}{nearest(str(op['level']), levels)}"
        )
    constraint["requiredTopologyLevel"] = op["level"]


def _set_min_member(draft: Draft, op: Object) -> None:
    _part(_group(draft, op), op)["minMember"] = int(number_of(op, "value", _MOST_WHOLE))


def _set_group_queue(draft: Draft, op: Object) -> None:
    group = _group(draft, op)
    draft.find("queues", "queue", op["queue"])
    group["spec"]["queue"] = op["queue"]
    group["metadata"].setdefault("labels", {})[QUEUE] = op["queue"]


def _clear_backoff(draft: Draft, op: Object) -> None:
    group = _group(draft, op)
    if not (group.get("status") or {}).get("schedulingConditions"):
        raise BadOperation(f"podgroup {key_of(group)} has no scheduling backoff")
    group["spec"]["schedulingBackoff"] = -1
    (group.get("status") or {}).pop("schedulingConditions", None)


def _set_request(draft: Draft, op: Object) -> None:
    resource, value = op["resource"], op["value"]
    for pod in draft.waiting_pods(path_of(op["podGroup"])):
        resources = pod["spec"]["containers"][0].setdefault("resources", {})
        if resource == GPU_FRACTION:
            pod["metadata"].setdefault("annotations", {})[GPU_FRACTION] = str(value)
            continue
        for part in ("requests", "limits"):
            if part == "requests" or resource in (resources.get("limits") or {}):
                resources.setdefault(part, {})[resource] = amount_text(value)


def amount_text(value: Any) -> str:
    """A quantity as Kubernetes writes it."""
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value) == int(value) else str(value)


def _tolerate(draft: Draft, op: Object) -> None:
    known = sorted(
        {taint["key"] for node in draft.objects("nodes") for taint in spec_of(node).get("taints") or ()}
    )
    if op["key"] not in known:
        raise BadOperation(f"no node has a taint {op['key']}{nearest(str(op['key']), known)}")
    toleration = {"key": op["key"], "operator": "Exists"}
    if op.get("effect"):
        toleration["effect"] = op["effect"]
    for pod in draft.waiting_pods(path_of(op["podGroup"])):
        pod["spec"].setdefault("tolerations", []).append(dict(toleration))


def _drop_selector(draft: Draft, op: Object) -> None:
    keys = set(op["keys"])
    known: set[str] = set()
    for pod in draft.waiting_pods(path_of(op["podGroup"])):
        selector = pod["spec"].get("nodeSelector") or {}
        known |= selector.keys()
        for key in keys:
            selector.pop(key, None)
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        for term in required.get("nodeSelectorTerms") or []:
            rules = term.get("matchExpressions") or []
            known |= {rule["key"] for rule in rules}
            term["matchExpressions"] = [rule for rule in rules if rule["key"] not in keys]
    for key in sorted(keys - known):
        raise BadOperation(f"podgroup {op['podGroup']} selects no node by {key}{nearest(key, sorted(known))}")


def _ungate(draft: Draft, op: Object) -> None:
    gates = [pod["spec"].pop("schedulingGates", None) for pod in draft.waiting_pods(path_of(op["podGroup"]))]
    if not any(gates):
        raise BadOperation(f"podgroup {path_of(op['podGroup'])} has no scheduling gates")


def _set_subgroup(draft: Draft, op: Object) -> None:
    for pod in draft.waiting_pods(path_of(op["podGroup"])):
        if subgroup_of(pod) == op.get("from", subgroup_of(pod)):
            pod["metadata"].setdefault("labels", {})[SUBGROUP] = op["subGroup"]


def _stop(draft: Draft, op: Object) -> None:
    gone = {path_of(name) for name in op["pods"]}
    known = [key_of(pod) for pod in draft.objects("pods") if group_of(pod)]
    for name in sorted(gone - set(known)):
        raise BadOperation(f"there is no pod {name} of a pod group{nearest(name, known)}")
    end_pods(draft, gone)


def _remove(draft: Draft, op: Object) -> None:
    gone = {path_of(name) for name in op["podGroups"]}
    for name in sorted(gone):
        draft.position("podGroups", "podgroup", name)
    end_groups(draft, gone)


def _move(draft: Draft, op: Object) -> None:
    for move in op["moves"]:
        pod = draft.edit("pods", "pod", path_of(move["pod"]))
        draft.find("nodes", "node", move["node"])
        if not holds(pod):
            raise BadOperation(f"pod {path_of(move['pod'])} does not run, so it cannot be moved")
        pod["spec"]["nodeName"] = move["node"]


def _title(item: Object) -> str:
    """The name of an object, with its namespace where its kind has one."""
    return name_of(item) if item.get("kind") in ("Queue", "PriorityClass", "Topology") else key_of(item)


def _add(draft: Draft, op: Object) -> None:
    plans: list[Object] = []
    others: list[Object] = []
    scheduler = str((draft.raw.get("schedulerParams") or {}).get("schedulerName") or Policy().scheduler_name)
    for item in op.get("objects") or [op["object"]]:
        kind = item.get("kind") if isinstance(item, dict) else None
        if kind not in PLURALS and kind not in PARTS:
            raise BadOperation(f"objects of kind {kind} cannot be added; only {', '.join(ADDABLE)}")
        alone = kind == "Pod" and group_of(item) is None and not metadata(item).get("ownerReferences")
        ours = alone and spec_of(item).get("schedulerName") == scheduler
        (plans if kind in PARTS or ours else others).append(item)
    if plans:
        classes = [*draft.objects("priorityClasses"), *(o for o in others if o["kind"] == "PriorityClass")]
        groups, pods = planned(plans, classes, scheduler, MOST_OBJECTS)
        others += groups + pods
    taken = {
        kind: {_title({**item, "kind": kind}) for item in draft.objects(PLURALS[kind])}
        for kind in {item["kind"] for item in others}
    }
    for given in others:
        item = clone(given)
        kind = item["kind"]
        if _title(item) in taken[kind]:
            raise BadOperation(f"there is a {kind} {_title(item)} already")
        taken[kind].add(_title(item))
        head = item.setdefault("metadata", {})
        head.setdefault("uid", f"new-{kind}-{head.get('name')}")
        head.setdefault("creationTimestamp", rfc3339(draft.now))
        if kind == "Pod":
            state_requests(item)
            item.setdefault("status", {"phase": "Pending"})
        draft.list_of(PLURALS[kind]).append(item)


_OPERATIONS: Final[dict[str, Callable[[Draft, Object], None]]] = {
    "at": _at,
    "add-nodes": _add_nodes,
    "cordon": _cordon,
    "uncordon": _uncordon,
    "drain": _drain,
    "remove-nodes": _remove_nodes,
    "untaint": _untaint,
    "set-queue": _set_queue,
    "enable-action": _enable_action,
    "disable-action": _disable_action,
    "set-priority": _set_priority,
    "set-preemptibility": _set_preemptibility,
    "set-topology": _set_topology,
    "set-min-member": _set_min_member,
    "set-group-queue": _set_group_queue,
    "clear-backoff": _clear_backoff,
    "set-request": _set_request,
    "tolerate": _tolerate,
    "drop-selector": _drop_selector,
    "ungate": _ungate,
    "set-subgroup": _set_subgroup,
    "stop": _stop,
    "remove": _remove,
    "move": _move,
    "add": _add,
    "create": _add,
}
KNOWN: Final = tuple(sorted(_OPERATIONS))
"""All operations."""
