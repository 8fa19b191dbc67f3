"""The kinds of fixes that change the workload, the queue or the settings, from the cheapest change up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Final

from kai_cp.explain.raw import alive, group_of, notes_of, spec_of
from kai_cp.explain.trials import Fix, FixCandidate, Trials, smallest
from kai_cp.json_types import Object, plain_number
from kai_cp.keys import GPU, GPU_FRACTION
from kai_cp_models.pods import PodStatus
from kai_cp_models.policy import EVICTION_ACTIONS
from kai_cp_models.queries.why import free_after, own_faults, refuses
from kai_cp_models.snapshot import Subgroup

_MOST_QUEUES: Final = 8
"""The most queues that are tried for a pod group whose queue does not exist."""
_MOST_TOGETHER: Final = 3
"""The most taints or selector keys that are given up together."""
_HUNDREDTHS: Final = 100


def waiting_pods(trials: Trials) -> list[Object]:
    """Raw pods of the group that have no node."""
    pods = trials.raw["rawObjects"].get("pods") or []
    name = str(trials.key)
    return [
        pod
        for pod in pods
        if isinstance(pod, dict) and group_of(pod) == name and alive(pod) and not spec_of(pod).get("nodeName")
    ]


def repair(trials: Trials) -> Fix | None:
    """Repair what the group itself lacks: queue, gates, subgroup labels, backoff, objects."""
    candidates = sorted(
        (FixCandidate(tuple(ops), len(ops)) for ops in repairs(trials)), key=lambda c: c.amount
    )
    return trials.first("repair", "objects", candidates)


def repairs(trials: Trials) -> Iterator[list[Object]]:
    """Every way to supply all that the group lacks."""
    faults = own_faults(trials.situation, trials.group)
    name = str(trials.key)
    ops: list[Object] = []
    if "backoff" in faults:
        ops.append({"op": "clear-backoff", "podGroup": name})
    if "dependency" in faults:
        ops += [{"op": "create", "object": item} for item in _missing(trials)]
    queues: list[list[Object]] = [[]]
    if "queue" in faults:
        queues = [[{"op": "set-group-queue", "podGroup": name, "queue": q}] for q in _queues(trials)]
    ready = _readying(trials) if "readiness" in faults else [[]]
    for one in queues:
        for two in ready:
            if found := [*ops, *one, *two]:
                yield found


def _queues(trials: Trials) -> list[str]:
    leaves = sorted(trials.snapshot.leaf_queues)
    close = get_close_matches(trials.group.queue, leaves, _MOST_QUEUES, 0.0)
    return close or leaves[:_MOST_QUEUES]


def _readying(trials: Trials) -> list[list[Object]]:
    gang = trials.situation.gang(trials.key)
    name = str(trials.key)
    gated = any(pod.status is PodStatus.GATED for pod in (*gang.pods, *gang.unknown_subgroup_pods))
    ungate: list[Object] = [{"op": "ungate", "podGroup": name}] if gated else []
    found = [ungate] if ungate else []
    for wrong in sorted({pod.subgroup for pod in gang.unknown_subgroup_pods}):
        for leaf in gang.group.root.leaves():
            change = {
                "op": "set-subgroup",
                "podGroup": name,
                "from": wrong or "default",
                "subGroup": leaf.name,
            }
            found.append([*ungate, change])
    return found


def _missing(trials: Trials) -> list[Object]:
    """ConfigMaps and volume claims that the group's pods name and that do not exist."""
    snapshot = trials.snapshot
    claims = trials.raw["rawObjects"].get("persistentVolumeClaims") or []
    known = {
        (c["metadata"].get("namespace"), c["metadata"].get("name"))
        for c in claims
        if isinstance(c, dict) and isinstance(c.get("metadata"), dict)
    }
    found: dict[tuple[str, str, str], Object] = {}
    for pod in trials.situation.gang(trials.key).pods:
        space = pod.key.namespace
        for name in pod.spec.config_maps:
            if (space, name) not in snapshot.config_maps:
                found["ConfigMap", space, name] = {"apiVersion": "v1", "kind": "ConfigMap"}
        for name in pod.spec.volume_claims:
            if (space, name) not in known:
                spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                item = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
                found["PersistentVolumeClaim", space, name] = item
    return [
        item | {"metadata": {"name": name, "namespace": space}}
        for (_, space, name), item in sorted(found.items())
    ]


def uncordon(trials: Trials) -> Fix | None:
    """Make existing nodes usable: remove the fewest cordons and refusing taints."""
    pods = [pod for pod in trials.situation.gang(trials.key).pods]
    by_shape: dict[tuple[Any, ...], list[list[Object]]] = {}
    raw = {
        n["metadata"]["name"]: n for n in trials.raw["rawObjects"].get("nodes") or [] if isinstance(n, dict)
    }
    free = free_after(trials.situation)
    for node in trials.snapshot.nodes:
        ops: list[Object] = []
        if spec_of(raw.get(node.name, {})).get("unschedulable"):
            ops.append({"op": "uncordon", "nodes": [node.name]})
        refusing = [taint for taint in node.taints if refuses(taint, pods)]
        keys = sorted({taint.key for taint in refusing})
        ops += [{"op": "untaint", "node": node.name, "key": key} for key in keys]
        if ops:
            i = trials.snapshot.node_index[node.name]
            shape = (free[i].tobytes(), len(ops), tuple(keys), tuple(sorted(_plain(node.labels).items())))
            by_shape.setdefault(shape, []).append(ops)
    nodes = [one for same in by_shape.values() for one in same[:_MOST_TOGETHER]]
    candidates = sorted(_together(nodes), key=lambda c: c.amount)
    fix = trials.first("uncordon", "cordons and taints", candidates, complete=False)
    return replace(fix, proved=fix.amount == 1) if fix is not None else None


def _plain(labels: Any) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "kubernetes.io/hostname"}


def _together(choices: Sequence[Sequence[Object]]) -> Iterator[FixCandidate]:
    for size in range(1, min(_MOST_TOGETHER, len(choices)) + 1):
        for some in combinations(choices, size):
            ops = tuple(op for one in some for op in one)
            yield FixCandidate(ops, len(ops))


def enable_action(trials: Trials) -> Fix | None:
    """Configure an action that is not configured."""
    serving = ("allocate", *EVICTION_ACTIONS)
    missing = [action for action in serving if action not in trials.snapshot.policy.actions]
    return trials.first(
        "enable-action",
        "actions",
        [FixCandidate(({"op": "enable-action", "action": a},), 1) for a in missing],
    )


def raise_priority(trials: Trials) -> Fix | None:
    """The least priority that admits the group; never above the highest class by more than one."""
    group, snapshot = trials.group, trials.snapshot
    classes = [
        int(c["value"])
        for c in trials.raw["rawObjects"].get("priorityClasses") or []
        if isinstance(c, dict) and isinstance(c.get("value"), int)
    ]
    others = {g.priority for g in snapshot.groups if g.queue == group.queue and g.key != group.key}
    most = max([*classes, *others, group.priority], default=group.priority) + 1
    values = sorted({p + step for p in others for step in (0, 1) if group.priority < p + step <= most})
    return trials.first(
        "raise-priority",
        "priority",
        [
            FixCandidate(
                ({"op": "set-priority", "podGroup": str(group.key), "value": v},), v - group.priority
            )
            for v in values
        ],
    )


def relax_topology(trials: Trials) -> Fix | None:
    """Ask for a wider level, or for none; a level that does not exist counts as below the finest."""
    candidates: list[FixCandidate] = []
    widened: list[Object] = []
    total = 0
    for part, name in _constrained(trials.group.root):
        constraint = part.constraint
        assert constraint is not None
        topology = next((t for t in trials.snapshot.topologies if t.name == constraint.topology), None)
        levels = topology.levels if topology else ()
        at = levels.index(constraint.required) if constraint.required in levels else len(levels)
        op: Object = {"op": "set-topology", "podGroup": str(trials.key)}
        if name:
            op["subGroup"] = name
        for level in range(at - 1, -1, -1):
            candidates.append(FixCandidate(({**op, "level": levels[level]},), at - level))
        candidates.append(FixCandidate(({**op, "level": None},), at + 1))
        widened.append({**op, "level": None})
        total += at + 1
    if len(widened) > 1:
        candidates.append(FixCandidate(tuple(widened), total))
    candidates.sort(key=lambda c: c.amount)
    return trials.first("relax-topology", "levels", candidates, complete=len(widened) == 1)


def _constrained(part: Subgroup) -> Iterator[tuple[Subgroup, str]]:
    if part.constraint is not None and (part.constraint.required or part.constraint.error):
        yield part, part.name
    for child in part.children:
        yield from _constrained(child)


def reduce_gang(trials: Trials) -> Fix | None:
    """A smaller minimum, one pod set at a time."""
    candidates = []
    group = next(
        (
            g
            for g in trials.raw["rawObjects"].get("podGroups") or []
            if isinstance(g, dict)
            and f"{g['metadata'].get('namespace', 'default')}/{g['metadata']['name']}" == str(trials.key)
        ),
        {},
    )
    named = {part.get("name") for part in spec_of(group).get("subGroups") or [] if isinstance(part, dict)}
    for leaf in trials.group.root.leaves():
        op: Object = {"op": "set-min-member", "podGroup": str(trials.key)}
        if leaf.name in named:
            op["subGroup"] = leaf.name
        for value in range(leaf.minimum - 1, 0, -1):
            candidates.append(FixCandidate(({**op, "value": value},), leaf.minimum - value))
    candidates.sort(key=lambda c: c.amount)
    # Smaller gangs are never harder to place, so the smallest shows whether shrinking helps at all.
    if len(candidates) > 4 and trials.admits(candidates[-1].ops) is None:
        return None
    return trials.first("reduce-gang", "members", candidates, complete=len(named) < 2)


def reduce_request(trials: Trials) -> Fix | None:
    """Fewer GPUs per pod, or a smaller share of one, where all pods that wait ask alike."""
    found = _gpus_asked(trials)
    if found is None:
        return None
    resource, asked, scale = found
    units = math.ceil(asked * scale - 1e-6)

    def less(k: int) -> FixCandidate:
        value = plain_number((units - k) / scale)
        op = {"op": "set-request", "podGroup": str(trials.key), "resource": resource, "value": value}
        return FixCandidate((op,), plain_number(round(asked - value, 6)))

    return _smallest(trials, less, units - 1)


def asks_alike(trials: Trials) -> bool:
    """Whether all waiting pods of the group ask for the same number of whole GPUs, or the same share of
    one."""
    return _gpus_asked(trials) is not None


def _gpus_asked(trials: Trials) -> tuple[str, float, int] | None:
    """What every waiting pod asks for: the resource, how much, and the steps in one of it.

    None if pods differ: the operation gives all of them one request, which would raise that of some.
    """
    found = {_request_of(pod) for pod in waiting_pods(trials)}
    return found.pop() if len(found) == 1 else None


def _request_of(pod: Object) -> tuple[str, float, int] | None:
    """The same for one pod; None if it asks for neither whole GPUs nor a part of one."""
    if share := notes_of(pod).get(GPU_FRACTION):
        with suppress(ValueError):
            return GPU_FRACTION, float(share), _HUNDREDTHS
        return None
    containers = spec_of(pod).get("containers") or [{}]
    asked = ((containers[0].get("resources") or {}).get("requests") or {}).get(GPU, "")
    return (GPU, int(asked), 1) if str(asked).isdigit() else None


def _smallest(trials: Trials, make: Callable[[int], FixCandidate], most: int) -> Fix | None:
    """The smallest step from 1 to ``most`` that helps."""
    if most < 1 or trials.admits(make(most).ops) is None:
        return None
    steps, proved = smallest(lambda count: trials.admits(make(count).ops) is not None, most)
    return trials.first("reduce-request", "GPUs per pod", [make(steps)], complete=proved)


def tolerate(trials: Trials) -> Fix | None:
    """Tolerate the fewest taints."""
    pods = trials.situation.gang(trials.key).pods
    keys = sorted({t.key for node in trials.snapshot.nodes for t in node.taints if refuses(t, pods)})
    choices = [[{"op": "tolerate", "podGroup": str(trials.key), "key": key}] for key in keys]
    return trials.first("tolerate", "taints", list(_together(choices)), complete=True)


def drop_selector(trials: Trials) -> Fix | None:
    """Give up the fewest keys of node selectors and required node affinity."""
    keys: set[str] = set()
    for pod in trials.situation.gang(trials.key).pods:
        keys |= {key for key, _ in pod.spec.node_selector}
        keys |= {rule.key for term in pod.spec.node_affinity or () for rule in term if not rule.field}
    ordered = sorted(keys)
    candidates = [
        FixCandidate(({"op": "drop-selector", "podGroup": str(trials.key), "keys": list(some)},), size)
        for size in range(1, min(_MOST_TOGETHER, len(ordered)) + 1)
        for some in combinations(ordered, size)
    ]
    return trials.first("drop-selector", "keys", candidates)
