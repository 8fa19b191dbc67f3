"""The report of one answer, in the order of an operator's questions.

It says what stays pending and why, what is lost and for what, what starts, and which queues change. How the
solver got there is shown with ``--stages``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from kai_cp.json_types import Document
from kai_cp.report.headline import as_of, headline
from kai_cp.report.page import Page
from kai_cp.report.partition import partition
from kai_cp.report.reserved import estimated, over_time, reserved
from kai_cp.report.rolled_out import rolled_out
from kai_cp.report.rows import pod_of
from kai_cp.report.section import IN_PLACE, Cell, Names, Section, Shortening, ignored, skipped
from kai_cp.report.terminal import age, amount, gpus
from kai_cp.worker import End
from kai_cp_models.pods import UNLIMITED
from kai_cp_topology.records import Level


def report(
    name: str, document: Document, *, end: End = "done", everything: bool = False, stages: bool = False
) -> Page:
    """The whole report. ``everything``: long tables in full; ``stages``: how the solver got there."""
    sections = _sections(document, stages)
    return Page(headline(name, document, end), as_of(document), sections, shortening(document), everything)


def shortening(document: Document) -> Shortening:
    """The common parts of the names of pod groups and nodes."""
    groups = [_group(d) for d in document["decisions"]] + [e["podGroup"] for e in document["unscheduled"]]
    nodes = [d["node"] for d in document["decisions"]]
    return Shortening.of([group.partition("/")[0] for group in groups], nodes)


def _sections(document: Document, stages: bool) -> Iterator[Section]:
    decisions: Sequence[Document] = document["decisions"]
    of = {kind: [d for d in decisions if d["kind"] == kind] for kind in ("Bind", "Nominate", "Evict")}
    new_place = {pod_of(d): d["node"] for d in of["Nominate"]}
    evicted = {pod_of(d) for d in of["Evict"]}
    yield _waiting(document["unscheduled"], document.get("now", ""))
    yield _partition(document["unscheduled"])
    yield _evicted(of["Evict"], new_place)
    yield _starting(of["Bind"], [d for d in of["Nominate"] if pod_of(d) not in evicted])
    held = [*(document.get("reservations") or ()), *(document.get("draining") or ())]
    yield reserved(held, document.get("now", ""))
    yield over_time(held, document.get("now", ""))
    yield rolled_out(document.get("rollouts") or (), document.get("now", ""))
    yield _localities(document.get("localities", ()))
    yield _queues(document["queues"])
    yield skipped([(entry["object"], entry["reason"]) for entry in document["setAside"]])
    yield ignored(document.get("ignoredFields", {}))
    if stages:
        yield _stages(document["stages"])


def _group(decision: Document) -> str:
    return f"{decision['namespace']}/{decision['podGroup'] or decision['pod']}"


def _by_group(decisions: Sequence[Document]) -> dict[tuple[str, str, tuple[str, ...]], list[Document]]:
    """Decisions by pod group, action and trigger of an eviction."""
    found: dict[tuple[str, str, tuple[str, ...]], list[Document]] = defaultdict(list)
    for decision in decisions:
        found[_group(decision), decision["action"], tuple(decision.get("for", ()))].append(decision)
    return found


def _nodes(names: Sequence[str], before: str = "", after: str = "") -> Names:
    counted = Counter(names).most_common()
    return Names(tuple(f"{name} ×{count}" if count > 1 else name for name, count in counted), before, after)


def _gpus(decisions: Sequence[Document]) -> str:
    return amount(sum(d.get("gpus") or 0 for d in decisions))


def _queue(entry: Document) -> str:
    return str(entry.get("queue") or "")


def _waiting(entries: Sequence[Document], now: str) -> Section:
    """Grouped by queue and reason; inside a group in fair order."""
    last = 1 << 62
    ordered = sorted(
        entries, key=lambda e: (_queue(e), e["reason"], e.get("position") or last, e["podGroup"])
    )
    rows: list[tuple[Cell, ...]] = [
        (
            _queue(entry),
            Text(entry["reason"], style="bold"),
            entry["podGroup"],
            str(entry.get("position") or "-"),
            amount(entry.get("gpus") or 0),
            age(entry.get("ageSeconds")),
            Text(entry["proof"], style="green" if entry["proof"] == "proved" else "yellow"),
            entry["message"],
        )
        for entry in ordered
    ]
    columns = ["Queue", "Reason", "Pod group", "Position", "GPUs", "Age", "Proof", "Because"]
    if any("estimate" in entry for entry in ordered):
        columns.insert(6, "Start")
        rows = [(*row[:6], estimated(entry, now), *row[6:]) for row, entry in zip(rows, ordered, strict=True)]
    asked = sum(entry.get("gpus") or 0 for entry in entries)
    return Section(
        f"Stay pending, with {gpus(asked)}" if asked else "Stay pending",
        tuple(columns),
        rows,
        right=("Position", "GPUs", "Age", "Start"),
        fixed=("Queue", "Pod group"),
        note="Because",
        drop=("Proof", "Position", "Age"),
        merged=("Queue", "Reason"),
    )


def _evicted(decisions: Sequence[Document], new_place: Mapping[tuple[str, str], str]) -> Section:
    rows = []
    for (group, action, triggers), pods in _by_group(decisions).items():
        goes = _goes([(d["node"], new_place.get(pod_of(d))) for d in pods])
        old = _nodes([d["node"] for d in pods])
        trigger = Names(triggers) if triggers else "-"
        rows.append((group, _queue(pods[0]), str(len(pods)), _gpus(pods), trigger, goes, old, action))
    lost = sum(d.get("gpus") or 0 for d in decisions if pod_of(d) not in new_place)
    return Section(
        f"Evicted; {gpus(lost)} of running work {'is' if lost == 1 else 'are'} lost" if lost else "Evicted",
        ("Pod group", "Queue", "Pods", "GPUs", "For", "And then", "From", "By"),
        rows,
        right=("Pods", "GPUs"),
        fixed=("Pod group", "Queue"),
        drop=("By", "From", "Pods", "Queue"),
    )


def _goes(moves: Sequence[tuple[str, str | None]]) -> Names | str:
    """Where evicted pods go: each with its node and its new one, or None."""
    places = [new for old, new in moves if new is not None and new != old]
    counts = {
        IN_PLACE: sum(new == old for old, new in moves),
        "back to pending": sum(new is None for _, new in moves),
    }
    rest = [words if count == len(moves) else f"{count} {words}" for words, count in counts.items() if count]
    if not places:
        return "; ".join(rest)
    return _nodes(places, "moves to ", "".join(f"; {part}" for part in rest))


def _starting(bound: Sequence[Document], nominated: Sequence[Document]) -> Section:
    rows = [
        (group, _queue(pods[0]), str(len(pods)), _gpus(pods), when, _nodes([d["node"] for d in pods]), action)
        for when, decisions in (("now", bound), ("when free", nominated))
        for (group, action, _), pods in _by_group(decisions).items()
    ]
    asked = sum(d.get("gpus") or 0 for d in (*bound, *nominated))
    return Section(
        f"Start, with {gpus(asked)}" if asked else "Start",
        ("Pod group", "Queue", "Pods", "GPUs", "When", "Nodes", "By"),
        rows,
        right=("Pods", "GPUs"),
        fixed=("Pod group", "Queue"),
        drop=("By", "Queue", "Pods"),
    )


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
    return Section(
        "Gangs on several nodes",
        ("Pod group", "Share one", *numbers),
        rows,
        right=numbers,
        fixed=("Pod group",),
        drop=("Segment [GPUs]", "NVLink domains", "Worst pair [GB/s]"),
    )


def _partition(entries: Sequence[Document]) -> Section:
    """The MIG partition that is advised: one for the whole cluster, named by every pod group that it would
    help."""
    advice = [entry["details"]["migPartition"] for entry in entries if "migPartition" in entry["details"]]
    if not advice:
        return partition(0, 0, ())
    nodes = ((node["node"], node["now"], node["then"]) for node in advice[0]["nodes"])
    return partition(advice[0]["podsInAllNow"], advice[0]["podsInAllThen"], nodes)


def _queues(queues: Mapping[str, Document]) -> Section:
    """In GPUs; in CPUs where no queue holds more or fewer GPUs than before."""
    keys = ("fairShare", "allocatedBefore", "allocatedAfter")
    numbers = ("Fair share", "Before", "After")
    for resource, unit, scale in (("gpu", "GPUs", 1), ("cpu", "CPUs", 1000)):
        rows = [
            (name, *(_scaled(report[key][resource], scale) for key in keys))
            for name, report in queues.items()
            if report["allocatedBefore"][resource] != report["allocatedAfter"][resource]
        ]
        title = f"Queues that change, in {unit}"
        if rows:
            break
    return Section(title, ("Queue", *numbers), rows, right=numbers, fixed=("Queue",))


def _scaled(value: float | None, scale: int) -> str:
    return amount(value if value in (None, UNLIMITED) else value / scale)


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
    return Section(
        "Stages",
        ("Stage", "Status", *numbers),
        rows,
        right=numbers,
        fixed=("Stage",),
        drop=("Model", "Bound", "Seconds"),
    )
