"""The what-if operations of a command line, in the order given, as JSON operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kai_cp.decisions import rfc3339
from kai_cp.explain.draft import BadOperation, nearest
from kai_cp.explain.operations import ADDABLE, QUEUE_FIELDS, QUEUE_RESOURCES, path_of
from kai_cp.explain.raw import metadata
from kai_cp.json_types import Object
from kai_cp.keys import GPU
from kai_cp.reader.times import go_duration
from kai_cp_models.policy import POLICY_ACTIONS
from kai_cp_models.shown import shown

_AMOUNTS: Final = {"quota": "quota", "limit": "limit", "weight": "overQuotaWeight"}
_EMPTY: Final[Mapping[str, Object]] = {
    "ConfigMap": {"apiVersion": "v1"},
    "PersistentVolumeClaim": {
        "apiVersion": "v1",
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
}


def operation(option: str, value: str, now: float) -> list[Object]:
    """The operations of one option, such as ``--drain`` with ``n1``; raises ``BadOperation``."""
    try:
        return OPTIONS[option](value, now)
    except BadFile:
        raise
    except BadOperation as problem:
        raise BadOperation(f"{option} {value}: {problem}") from None


def _pair(value: str, what: str) -> tuple[str, str]:
    left, sign, right = value.partition("=")
    if not sign or not left:
        raise BadOperation(f"expected {what}")
    return left, right


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        raise BadOperation(f"{text!r} is not {what}")
    return int(text)


def _number(text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise BadOperation(f"{text!r} is not a number") from None
    if value != value or abs(value) > 2**53:
        raise BadOperation(f"{text!r} is not an amount")
    return int(value) if value == int(value) else value


def _names(value: str) -> list[str]:
    found = [part.strip() for part in value.split(",") if part.strip()]
    if not found:
        raise BadOperation("names nothing")
    return found


def _add_nodes(value: str, now: float) -> list[Object]:
    like, count = _pair(value, "NODE=COUNT")
    return [{"op": "add-nodes", "like": like, "count": _whole(count, "a number of nodes")}]


def _of_nodes(what: str) -> Callable[[str, float], list[Object]]:
    return lambda value, now: [{"op": what, "nodes": _names(value)}]


def _untaint(value: str, now: float) -> list[Object]:
    node, key = _pair(value, "NODE=KEY")
    return [{"op": "untaint", "node": node, "key": key}]


def _set_queue(value: str, now: float) -> list[Object]:
    where, amount = _pair(value, "QUEUE.RESOURCE.FIELD=VALUE")
    parts = where.rsplit(".", 2)
    known = f"{', '.join(_AMOUNTS)} (of {', '.join(QUEUE_RESOURCES)}), {', '.join(QUEUE_FIELDS)}"
    if len(parts) == 3 and parts[1] in QUEUE_RESOURCES:
        queue, resource, name = parts
        if name not in _AMOUNTS:
            raise BadOperation(f"there is no queue field {name}; the fields are {known}")
        op: Object = {"op": "set-queue", "queue": queue, "resource": resource, "field": _AMOUNTS[name]}
        return [{**op, "value": _number(amount)}]
    queue, _, name = where.rpartition(".")
    if name in _AMOUNTS:
        raise BadOperation(f"expected QUEUE.RESOURCE.{name} with one of {', '.join(QUEUE_RESOURCES)}")
    if not queue or name not in QUEUE_FIELDS:
        raise BadOperation(f"there is no queue field {name or where}; the fields are {known}")
    found: Any = _whole(amount, "a priority") if name == "priority" else amount
    if name != "priority":
        _seconds(amount)
    return [{"op": "set-queue", "queue": queue, "field": name, "value": found}]


def _add(value: str, now: float) -> list[Object]:
    return [{"op": "add", "objects": read_objects(Path(value))}]


def read_objects(path: Path) -> list[Object]:
    """The objects of a YAML or JSON file, with the defaults of an API server; raises ``BadFile``."""
    import yaml

    from kai_cp import files, yaml_text

    try:
        found = [item for item in yaml_text.load_all(files.read_text(path)) if item is not None]
    except (OSError, yaml.YAMLError) as problem:
        raise BadFile(f"{path}: {yaml_text.why(problem)}") from None
    objects: list[Object] = []
    for item in found:
        items = item.get("items") if isinstance(item, dict) and item.get("kind") == "List" else [item]
        for one in items if isinstance(items, list) else []:
            if not isinstance(one, dict) or one.get("kind") not in ADDABLE:
                kind = one.get("kind") if isinstance(one, dict) else one
                said = "an object without kind" if kind is None else shown(kind)
                raise BadFile(f"{path}: {said}: only {', '.join(ADDABLE)} can be added")
            if not metadata(one).get("name"):
                raise BadFile(f"{path}: {one['kind']} without metadata.name")
            objects.append(one)
    if not objects:
        raise BadFile(f"{path}: holds no object")
    return objects


class BadFile(BadOperation):
    """A file of ``--add`` that cannot be used."""


def _remove(value: str, now: float) -> list[Object]:
    return [{"op": "remove", "podGroups": [_group(name) for name in _names(value)]}]


def _stop(value: str, now: float) -> list[Object]:
    return [{"op": "stop", "pods": [path_of(name) for name in _names(value)]}]


def _move(value: str, now: float) -> list[Object]:
    moves = [_pair(part, "pod/NAMESPACE/NAME=NODE") for part in _names(value)]
    return [{"op": "move", "moves": [{"pod": path_of(pod), "node": node} for pod, node in moves]}]


def _group(text: str) -> str:
    if text.count("/") != 2 or not text.startswith("podgroup/"):
        raise BadOperation(f"expected podgroup/NAMESPACE/NAME, not {text!r}")
    return path_of(text)


def _set_priority(value: str, now: float) -> list[Object]:
    group, amount = _pair(value, "podgroup/NAMESPACE/NAME=PRIORITY")
    return [{"op": "set-priority", "podGroup": _group(group), "value": _whole(amount, "a priority")}]


def _set_topology(value: str, now: float) -> list[Object]:
    group, level = _pair(value, "podgroup/NAMESPACE/NAME=LEVEL")
    return [{"op": "set-topology", "podGroup": _group(group), "level": level or None}]


def _set_request(value: str, now: float) -> list[Object]:
    where, amount = _pair(value, "podgroup/NAMESPACE/NAME.RESOURCE=AMOUNT")
    match = re.fullmatch(r"(podgroup/[^/]+/[^/]+?)\.(gpu|cpu|memory|gpu-fraction|[^/]+/[^/]+)", where)
    if match is None:
        raise BadOperation("expected podgroup/NAMESPACE/NAME.RESOURCE=AMOUNT")
    group, resource = match[1], GPU if match[2] == "gpu" else match[2]
    op: Object = {"op": "set-request", "podGroup": _group(group), "resource": resource}
    return [{**op, "value": _quantity(amount)}]


def _quantity(text: str) -> Any:
    from kai_cp.reader.fields import Malformed
    from kai_cp.reader.quantity import quantity

    try:
        quantity(text, "AMOUNT", milli=True)
    except Malformed as problem:
        raise BadOperation(str(problem)) from None
    return text


def _set_min_member(value: str, now: float) -> list[Object]:
    group, amount = _pair(value, "podgroup/NAMESPACE/NAME=COUNT")
    return [{"op": "set-min-member", "podGroup": _group(group), "value": _whole(amount, "a minimum")}]


def _tolerate(value: str, now: float) -> list[Object]:
    group, key = _pair(value, "podgroup/NAMESPACE/NAME=KEY")
    return [{"op": "tolerate", "podGroup": _group(group), "key": key}]


def _drop_selector(value: str, now: float) -> list[Object]:
    group, keys = _pair(value, "podgroup/NAMESPACE/NAME=KEY,…")
    return [{"op": "drop-selector", "podGroup": _group(group), "keys": _names(keys)}]


def _set_group_queue(value: str, now: float) -> list[Object]:
    group, queue = _pair(value, "podgroup/NAMESPACE/NAME=QUEUE")
    return [{"op": "set-group-queue", "podGroup": _group(group), "queue": queue}]


def _of_group(what: str) -> Callable[[str, float], list[Object]]:
    return lambda value, now: [{"op": what, "podGroup": _group(value)}]


def _create(value: str, now: float) -> list[Object]:
    parts = value.split("/")
    kind = next((k for k in _EMPTY if k.lower() == parts[0].lower()), None)
    if len(parts) != 3 or kind is None:
        raise BadOperation(f"expected KIND/NAMESPACE/NAME with one of the kinds {', '.join(_EMPTY)}")
    item = {"kind": kind, **_EMPTY[kind], "metadata": {"namespace": parts[1], "name": parts[2]}}
    return [{"op": "create", "object": item}]


def _action(what: str) -> Callable[[str, float], list[Object]]:
    def make(value: str, now: float) -> list[Object]:
        for name in _names(value):
            if name not in POLICY_ACTIONS:
                raise BadOperation(f"there is no action {name}{nearest(name, list(POLICY_ACTIONS))}")
        return [{"op": what, "action": name} for name in _names(value)]

    return make


def _after(value: str, now: float) -> list[Object]:
    return [{"op": "at", "now": rfc3339(now + _seconds(value))}]


def _at(value: str, now: float) -> list[Object]:
    from kai_cp.decisions import from_rfc3339

    try:
        at = from_rfc3339(value)
        said = rfc3339(at)
    except (ValueError, OverflowError):
        raise BadOperation(f"{value!r} is not an RFC 3339 time such as 2026-11-20T12:00:00Z") from None
    if at < now:
        raise BadOperation(f"the snapshot is from {rfc3339(now)}; it says nothing about earlier times")
    return [{"op": "at", "now": said}]


def _seconds(text: str) -> float:
    try:
        found = go_duration(text, days=True)
    except ValueError:
        raise BadOperation(
            f"{text!r} is not a duration such as 30m, 1h30m or 7d of at most 292 years"
        ) from None
    if found < 0:
        raise BadOperation(f"{text!r} is below zero")
    return found


OPTIONS: Final[Mapping[str, Callable[[str, float], list[Object]]]] = {
    "--add-nodes": _add_nodes,
    "--remove-nodes": _of_nodes("remove-nodes"),
    "--drain": _of_nodes("drain"),
    "--cordon": _of_nodes("cordon"),
    "--uncordon": _of_nodes("uncordon"),
    "--untaint": _untaint,
    "--set-queue": _set_queue,
    "--add": _add,
    "--remove": _remove,
    "--stop": _stop,
    "--move": _move,
    "--set-priority": _set_priority,
    "--set-topology": _set_topology,
    "--set-request": _set_request,
    "--set-min-member": _set_min_member,
    "--tolerate": _tolerate,
    "--drop-selector": _drop_selector,
    "--set-group-queue": _set_group_queue,
    "--ungate": _of_group("ungate"),
    "--clear-backoff": _of_group("clear-backoff"),
    "--create": _create,
    "--enable": _action("enable-action"),
    "--disable": _action("disable-action"),
    "--after": _after,
    "--at": _at,
}
"""What turns each option's value into operations."""


def in_order(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The options of ``OPTIONS`` with their values, in the order of the command line."""
    found: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        name, sign, value = word.partition("=")
        if word in OPTIONS and rest:
            found.append((word, rest.pop(0)))
        elif sign and name in OPTIONS:
            found.append((name, value))
    return found
