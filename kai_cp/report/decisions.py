"""The report of one answer: what is bound, nominated and evicted and why, and why the rest waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from kai_cp.report.headline import headline
from kai_cp.report.partition import partition
from kai_cp.report.section import ROWS_SHOWN, Section, ignored
from kai_cp.report.terminal import amount
from kai_cp.worker import End
from kai_cp_topology.records import Level

_NAMES_SHOWN: Final = 2

Document = Mapping[str, Any]


def report(name: str, document: Document, *, end: End = "done", everything: bool = False) -> RenderableType:
    """The whole report. ``everything``: long tables in full."""
    most = None if everything else ROWS_SHOWN
    tables = [section.render(most) for section in _sections(document) if section.rows]
    return Group(headline(name, document, end), *tables)


def _sections(document: Document) -> Iterator[Section]:
    decisions: Sequence[Document] = document["decisions"]
    of = {kind: [d for d in decisions if d["kind"] == kind] for kind in ("Bind", "Nominate", "Evict")}
    new_place = {_pod(d): d["node"] for d in of["Nominate"]}
    evicted = {_pod(d) for d in of["Evict"]}
    yield _placed("Bound now", of["Bind"])
    fresh = [d for d in of["Nominate"] if _pod(d) not in evicted]
    yield _placed("Nominated: the room is promised, not free yet", fresh)
    yield _evicted(of["Evict"], new_place)
    yield _localities(document.get("localities", ()))
    yield _waiting(document["unscheduled"])
    yield _partition(document["unscheduled"])
    yield _queues(document["queues"])
    yield _stages(document["stages"])
    left_out = [(entry["object"], entry["reason"]) for entry in document["setAside"]]
    yield Section("Set aside: left out of this answer", ("Object", "Reason"), left_out, fixed=("Object",))
    yield ignored(document.get("ignoredFields", {}))


def _pod(decision: Document) -> tuple[str, str]:
    return decision["namespace"], decision["pod"]


def _by_group(decisions: Sequence[Document]) -> dict[tuple[str, str, str], list[Document]]:
    """Decisions by pod group, action and whom an eviction is for."""
    found: dict[tuple[str, str, str], list[Document]] = defaultdict(list)
    for decision in decisions:
        group = f"{decision['namespace']}/{decision['podGroup'] or decision['pod']}"
        found[group, decision["action"], _few(decision.get("for", ()))].append(decision)
    return found


def _few(names: Sequence[str]) -> str:
    shown = list(names[:_NAMES_SHOWN])
    return ", ".join(shown + ([f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []))


def _nodes(names: Sequence[str]) -> str:
    return _few([f"{name} ×{count}" if count > 1 else name for name, count in Counter(names).most_common()])


def _why(decisions: Sequence[Document]) -> str:
    return _few(list(dict.fromkeys(d["message"] for d in decisions if d["message"])))


def _placed(title: str, decisions: Sequence[Document]) -> Section:
    rows: list[tuple[str, ...]] = [
        (group, str(len(pods)), _nodes([d["node"] for d in pods]), action, _why(pods))
        for (group, action, _), pods in _by_group(decisions).items()
    ]
    columns: tuple[str, ...] = ("Pod group", "Pods", "Nodes", "By", "Why")
    if len({row[-1] for row in rows}) == 1:  # The same for all says nothing about any.
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Section(title, columns, rows, right=("Pods",), fixed=("Pod group", "By"))


def _evicted(decisions: Sequence[Document], new_place: Mapping[tuple[str, str], str]) -> Section:
    rows = []
    for (group, action, triggers), pods in _by_group(decisions).items():
        places = [new_place[_pod(d)] for d in pods if _pod(d) in new_place]
        goes = [f"moves to {_nodes(places)}"] if places else []
        if len(places) < len(pods):
            goes.append(f"{len(pods) - len(places)} wait again" if places else "waits again")
        old = _nodes([d["node"] for d in pods])
        rows.append((group, str(len(pods)), old, action, triggers, "; ".join(goes), _why(pods)))
    columns = ("Pod group", "Pods", "From", "By", "For", "And then", "Why")
    return Section("Evicted", columns, rows, right=("Pods",), fixed=("Pod group", "By", "For"))


def _localities(entries: Sequence[Document]) -> Section:
    rows = [
        (
            entry["podGroup"],
            Level(entry["level"]).name or "no level",
            str(entry["hops"]),
            amount(entry["worstPairGBytesPerSecond"] or 0),
            str(entry["nvlinkDomains"]),
            str(entry["segmentGpus"]),
        )
        for entry in entries
    ]
    numbers = ("Hops", "Worst pair [GB/s]", "NVLink domains", "Segment [GPUs]")
    columns = ("Pod group", "Share one", *numbers)
    return Section("Gangs on several nodes", columns, rows, right=numbers, fixed=columns[:2])


def _waiting(entries: Sequence[Document]) -> Section:
    rows = [
        (
            entry["podGroup"],
            Text(entry["reason"], style="bold"),
            Text(entry["proof"], style="green" if entry["proof"] == "proved" else "yellow"),
            entry["message"],
        )
        for entry in entries
    ]
    columns = ("Pod group", "Reason", "Proof", "Because")
    return Section("Stay pending", columns, rows, fixed=columns[:3])


def _partition(entries: Sequence[Document]) -> Section:
    """The repartition that is advised: one for the whole cluster, named by every pod group it would help."""
    advice = [entry["details"]["migPartition"] for entry in entries if "migPartition" in entry["details"]]
    if not advice:
        return partition(0, 0, ())
    nodes = ((node["node"], node["now"], node["then"]) for node in advice[0]["nodes"])
    return partition(advice[0]["podsInAllNow"], advice[0]["podsInAllThen"], nodes)


def _queues(queues: Mapping[str, Document]) -> Section:
    rows = [
        (name, *(amount(report[key]["gpu"]) for key in ("fairShare", "allocatedBefore", "allocatedAfter")))
        for name, report in queues.items()
        if report["allocatedBefore"] != report["allocatedAfter"]
    ]
    numbers = ("Fair share", "Before", "After")
    title = "Queues that change, in GPUs"
    return Section(title, ("Queue", *numbers), rows, right=numbers, fixed=("Queue",))


def _stages(stages: Sequence[Document]) -> Section:
    rows = [
        (
            stage["name"],
            Text(stage["status"], style="green" if stage["status"] == "OPTIMAL" else "yellow"),
            amount(stage["objective"]),
            amount(stage["bound"]),
            f"{stage['gap']:.2%}" if stage["gap"] else "0",
            f"{stage['variables']:,} × {stage['constraints']:,}" if stage["variables"] else "",
            f"{stage['seconds']:.3f}",
        )
        for stage in stages
    ]
    numbers = ("Objective", "Bound", "Gap", "Model", "Seconds")
    return Section("Stages", ("Stage", "Status", *numbers), rows, right=numbers, fixed=("Status",))
