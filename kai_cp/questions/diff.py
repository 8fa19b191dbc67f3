"""The differences between two answers, or between two snapshots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kai_cp.decisions import with_groups
from kai_cp.json_types import Document
from kai_cp.report.section import Section
from kai_cp_models.plan import Plan
from kai_cp_models.pods import PodKey
from kai_cp_models.shown import plural

Objects = Mapping[tuple[str, str], Any]
"""By list of the snapshot and name."""


def decisions(a: Plan, b: Plan, waiting: tuple[bool, bool] = (True, True)) -> dict[str, Any]:
    """``decision-diff/1``: pod groups to which two answers give different things, pods they evict, and nodes
    they choose.

    The answers may come from any engine: KAI's and ours, or ours with two settings. If only one answer names
    a pod's group, the pod is of that group in both; if neither does, the pod is a group of its own.

    ``waiting``: whether each answer says what stays pending; KAI's does not. What only one of them says is no
    difference.
    """
    groups = {d.pod: d.group for plan in (a, b) for d in plan.decisions if d.group is not None}
    answers = [with_groups(plan, groups) for plan in (a, b)]
    if not all(waiting):
        answers = [replace(plan, unscheduled=()) for plan in answers]
    return {
        "schema": "decision-diff/1",
        "podGroups": list(_groups(*answers)),
        "evictions": list(_evictions(*answers)),
        "places": list(_places(*answers)),
        "a": _totals(a, told=waiting[0]),
        "b": _totals(b, told=waiting[1]),
    }


def _totals(plan: Plan, *, told: bool) -> dict[str, int | None]:
    kinds = Counter(decision.kind for decision in plan.decisions)
    evicted = _pods(plan, "Evict")
    moved = _pods(plan, "Nominate") & evicted
    return {
        "bound": kinds["Bind"],
        "nominated": kinds["Nominate"] - len(moved),
        "evicted": len(evicted) - len(moved),
        "moved": len(moved),
        "pendingPodGroups": len(plan.unscheduled) if told else None,
    }


def _pods(plan: Plan, kind: str) -> set[PodKey]:
    return {decision.pod for decision in plan.decisions if decision.kind == kind}


def _given(plan: Plan) -> dict[str, Counter[str]]:
    """The number of pods that get a place, by pod group and kind of decision; moved pods do not count."""
    evicted = _pods(plan, "Evict")
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for decision in plan.decisions:
        if decision.kind != "Evict" and decision.pod not in evicted:
            found[str(decision.group or decision.pod)][decision.kind] += 1
    return found


def _groups(a: Plan, b: Plan) -> Iterator[dict[str, Any]]:
    given = [_given(plan) for plan in (a, b)]
    why = [{str(entry.group): entry.reason for entry in plan.unscheduled} for plan in (a, b)]
    for name in sorted(set(given[0]) | set(given[1]) | set(why[0]) | set(why[1])):
        said = [_words(given[i].get(name, Counter()), why[i].get(name)) for i in (0, 1)]
        if said[0] != said[1]:
            yield {"podGroup": name, "a": said[0], "b": said[1]}


def _words(given: Counter[str], reason: str | None) -> str:
    words = {"Bind": "bound", "Nominate": "nominated"}
    parts = [f"{given[kind]} {word}" for kind, word in words.items() if given[kind]]
    return ", ".join([*parts, *([f"pending: {reason}"] if reason else [])]) or "-"


def _evictions(a: Plan, b: Plan) -> Iterator[dict[str, Any]]:
    fates = [_fates(_pods(plan, "Evict"), _pods(plan, "Nominate")) for plan in (a, b)]
    for pod in sorted(set(fates[0]) | set(fates[1])):
        said = [fate.get(pod, "stays") for fate in fates]
        if said[0] != said[1]:
            yield {"pod": str(pod), "a": said[0], "b": said[1]}


def _fates(evicted: set[PodKey], placed: set[PodKey]) -> dict[PodKey, str]:
    return {pod: "moved" if pod in placed else "evicted" for pod in evicted}


def _places(a: Plan, b: Plan) -> Iterator[dict[str, Any]]:
    nodes = [{d.pod: d.node for d in plan.decisions if d.kind != "Evict"} for plan in (a, b)]
    for pod in sorted(nodes[0].keys() & nodes[1].keys()):
        if nodes[0][pod] != nodes[1][pod]:
            yield {"pod": str(pod), "a": nodes[0][pod], "b": nodes[1][pod]}


def snapshots(a: Document, b: Document) -> dict[str, Any]:
    """``snapshot-diff/1``: objects of two raw snapshots that were added, removed or changed, and where."""
    before, after = _objects(a), _objects(b)
    changes: list[dict[str, Any]] = []
    for kind, name in sorted(set(before) | set(after)):
        old, new = before.get((kind, name)), after.get((kind, name))
        if old is None or new is None:
            changes.append({"kind": kind, "object": name, "change": "added" if old is None else "removed"})
        elif old != new and (found := dict(_changed(old, new))):
            values = [{"field": path, "a": found[path][0], "b": found[path][1]} for path in sorted(found)]
            fields = [entry["field"] for entry in values]
            changes.append(
                {"kind": kind, "object": name, "change": "changed", "fields": fields, "values": values}
            )
    return {"schema": "snapshot-diff/1", "objects": changes}


def _objects(raw: Document) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for kind, items in (raw.get("rawObjects") or {}).items():
        for item in items if isinstance(items, list) else ():
            meta = item.get("metadata") if isinstance(item, Mapping) else None
            if isinstance(meta, Mapping):
                name = "/".join(str(meta[key]) for key in ("namespace", "name") if meta.get(key))
                found[kind, name] = item
    for key in ("config", "schedulerParams"):
        if key in raw:
            found[key, ""] = raw[key]
    return found


_LONGEST_VALUE: Final = 40
"""Characters of a value that is shown."""
_NOISE = frozenset({"resourceVersion", "managedFields", "generation"})


def _changed(old: Any, new: Any, at: str = "", depth: int = 4) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The fields that differ, down to a depth, with both values; fields that every write changes are left
    out.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping) and depth:
        for key in {*old, *new} - _NOISE:
            if old.get(key) != new.get(key):
                yield from _changed(old.get(key), new.get(key), f"{at}.{key}" if at else str(key), depth - 1)
    else:
        yield at, (old, new)


_COUNTED = {
    "bound": "pods bound",
    "nominated": "pods nominated",
    "moved": "pods moved",
    "evicted": "pods evicted",
    "pendingPodGroups": "pod groups pending",
}


def sections(document: Document, names: tuple[str, str]) -> list[Section]:
    """The answer as tables; ``names`` are those of the two inputs."""
    if document["schema"] == "snapshot-diff/1":
        return _snapshot_sections(document)
    return _decision_sections(document, names)


def _decision_sections(document: Document, names: tuple[str, str]) -> list[Section]:
    totals = [
        (words, *("not told" if count is None else str(count) for count in counts))
        for key, words in _COUNTED.items()
        for counts in ((document["a"][key], document["b"][key]),)
    ]
    groups = [(entry["podGroup"], entry["a"], entry["b"]) for entry in document["podGroups"]]
    evicted = [(entry["pod"], entry["a"], entry["b"]) for entry in document["evictions"]]
    places = [(entry["pod"], entry["a"], entry["b"]) for entry in document["places"]]
    columns = ("A", "B")
    return [
        Section(f"A: {names[0]}; B: {names[1]}", ("Number of", *columns), totals, right=columns),
        Section("Pod groups", ("Pod group", *columns), groups, fixed=("Pod group",)),
        Section("Evictions", ("Pod", *columns), evicted, fixed=("Pod",)),
        Section("Nodes", ("Pod", *columns), places, fixed=("Pod",)),
    ]


def _snapshot_sections(document: Document) -> list[Section]:
    rows = [
        (entry["kind"], entry["object"], entry["change"], ", ".join(map(_words_of, entry.get("values", ()))))
        for entry in document["objects"]
    ]
    columns = ("Kind", "Object", "Change", "Fields")
    return [Section("Objects", columns, rows, fixed=("Object",), note="Fields")]


def _words_of(value: Document) -> str:
    """A field with its values, if both are short: ``spec.unschedulable: absent → true``."""
    said = [_value(value[side]) for side in ("a", "b")]
    return f"{value['field']}: {said[0]} → {said[1]}" if all(said) else str(value["field"])


def _value(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return ""
    if value is None or value == "":
        return "empty" if value == "" else "absent"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else ""


def headline(document: Document) -> str:
    """The headline of the answer."""
    if document["schema"] == "snapshot-diff/1":
        changes = Counter(entry["change"] for entry in document["objects"])
        words = ("added", "removed", "changed")
        said = ", ".join(f"{changes[word]} {word}" for word in words if changes[word])
        return f"Objects: {said}." if said else "The snapshots hold the same objects."
    counts = [
        plural(len(document[key]), noun)
        for key, noun in (("podGroups", "pod group"), ("evictions", "eviction"), ("places", "node"))
        if document[key]
    ]
    if not counts:
        return "The answers are the same: no pod group, eviction or node differs."
    return f"Different: {', '.join(counts)}."
