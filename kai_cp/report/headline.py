"""Headline: the line that answers, and the table of a batch with one row per input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from kai_cp.decisions import cut_during, named_stages
from kai_cp.report.section import Section
from kai_cp.report.terminal import age, amount, gpus
from kai_cp.worker import End
from kai_cp_models.plan import SPENT
from kai_cp_models.shown import plural

_STOPPED: Final = ("late", "interrupted")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pods a document binds, nominates, evicts; ``moved`` ones are evicted and nominated."""

    bound: int
    nominated: int
    evicted: int
    moved: int
    waiting: int
    """Pod groups that stay pending."""

    @staticmethod
    def of(document: Mapping[str, Any]) -> Counts:
        """Count the decisions of a document."""
        pods: dict[str, set[tuple[str, str]]] = {"Bind": set(), "Nominate": set(), "Evict": set()}
        for decision in document["decisions"]:
            pods[decision["kind"]].add((decision["namespace"], decision["pod"]))
        moved = pods["Evict"] & pods["Nominate"]
        return Counts(
            bound=len(pods["Bind"]),
            nominated=len(pods["Nominate"] - moved),
            evicted=len(pods["Evict"] - moved),
            moved=len(moved),
            waiting=len(document["unscheduled"]),
        )


def quality(document: Mapping[str, Any]) -> str:
    """How good the answer is proved to be."""
    undecided = sum(entry["reason"] == "NotDecidedInTime" for entry in document["unscheduled"])
    if undecided:
        return f"{plural(undecided, 'pod group')} not decided in time"
    statuses = [stage["status"] for stage in document["stages"]]
    if document["decisions"] and not statuses:
        return "without proof"  # of another program
    proved = statuses.count("OPTIMAL")
    if proved == len(statuses):
        return "proved optimal"
    if "FEASIBLE" in statuses or proved:
        return f"{proved} of {len(statuses)} stages proved"
    return "greedy answer only"


def seconds(document: Mapping[str, Any]) -> float:
    """Time from the start of reading to the end of writing."""
    timings = document["timings"]
    return float(sum(timings.get(name, 0.0) for name in ("read", "prepare", "solve", "check", "write")))


def cut(document: Mapping[str, Any], end: End) -> bool:
    """Whether time or patience ended the search before everything was decided or proved."""
    undecided = any(entry["proof"] != "proved" for entry in document["unscheduled"])
    return end in _STOPPED or undecided or quality(document) != "proved optimal"


def headline(name: str, document: Mapping[str, Any], end: End) -> Text:
    """The first line of a report."""
    counts = Counts.of(document)
    named = (
        ("bound", counts.bound),
        ("nominated", counts.nominated),
        ("moved", counts.moved),
        ("evicted", counts.evicted),
    )
    parts = [f"{number:,} {word}" for word, number in named if number]
    time = f"{seconds(document):.2f} s"
    if parts:
        first = next(number for _, number in named if number)
        parts[0] = parts[0].replace(" ", " pod " if first == 1 else " pods ", 1)
        result = ", ".join(parts)
    elif end in _STOPPED or (counts.waiting and cut(document, end)):
        result = f"no plan found in {time}"
    else:
        result = "nothing to change"
    part = part_of(document)
    line = Text.assemble((name, "bold"), _size(document), part, ": ", (result, "bold"), ". ")
    if counts.waiting:
        verb = "stays" if counts.waiting == 1 else "stay"
        waited = document.get("cluster", {}).get("waitingPodGroups", 0)
        several = f"{counts.waiting:,} of {plural(waited, 'waiting pod group')}"
        whole = waited >= counts.waiting and not part
        line.append(f"{several if whole else plural(counts.waiting, 'pod group')} {verb} pending. ")
    word = quality(document)
    style = "green" if word == "proved optimal" else "yellow"
    line.append(word[:1].upper() + word[1:], style=style)
    if end == "late":
        line.append(f". Stopped at the end of the budget: the best checked answer is from {time}.", style)
    elif end == "interrupted":
        line.append(f". Interrupted: the best checked answer so far is from {time}.", style)
    else:
        line.append(f", {time}.")
    return line


def part_of(document: Mapping[str, Any]) -> str:
    """The selection, if the document is a part of an answer: ``, only queue team-a``."""
    asked = document.get("selected") or {}
    nouns = (("queues", "queue"), ("namespaces", "namespace"), ("podGroups", "pod group"))
    names = [f"{noun} {', '.join(asked[key])}" for key, noun in nouns if asked.get(key)]
    return f", only {' and '.join(names)}" if names else ""


def _size(document: Mapping[str, Any]) -> str:
    """The size of the cluster; a document from another program may not state it."""
    cluster = document.get("cluster")
    if cluster is None:
        return ""
    return f" ({plural(cluster['nodes'], 'node')}, {gpus(cluster['gpus'])})"


def as_of(document: Mapping[str, Any]) -> str:
    """When the snapshot was read, how old its historic usage was then, and which steps ended early."""
    told = [f"As of {document['now']}."] if document.get("now") else []
    if usage := document.get("usage"):
        told.append(f"Historic usage is {age(usage['ageSeconds'])} old.")
    during = cut_during(named_stages(document.get("stages", ())))
    if during := during or document.get("cutDuring"):
        told.append(f"{cut_words(during)}.")
    if spent := cut_during(named_stages(document.get("stages", ())), SPENT):
        told.append(f"Searches of {spent} ended at their share of the budget: a larger one may find more.")
    return " ".join(told)


def cut_words(during: str) -> str:
    """A sentence that a cycle was cut short, and what to do about it."""
    return f"Cut short by the deadline during {during}: a larger budget may find more"


def batch(rows: Iterable[tuple[str, Mapping[str, Any] | None, bool]]) -> Section:
    """One row per input: name, document, whether something went wrong (standard error has the details)."""
    numbers = ("GPUs", "Bound", "Nominated", "Moved", "Evicted", "Pending", "Seconds")
    lines: list[tuple[str | Text, ...]] = []
    for name, document, problem in rows:
        if document is None:
            lines.append((name, *[""] * len(numbers), Text("bad input", style="red")))
            continue
        counts = Counts.of(document)
        pods = (counts.bound, counts.nominated, counts.moved, counts.evicted, counts.waiting)
        lines.append(
            (
                name,
                amount(document.get("cluster", {}).get("gpus", 0)),
                *map(str, pods),
                f"{seconds(document):.2f}",
                Text("engine failed", style="red") if problem else quality(document),
            )
        )
    return Section(
        plural(len(lines), "snapshot"),
        ("Input", *numbers, "Answer"),
        lines,
        right=numbers,
        fixed=("Input",),
        drop=("Moved", "GPUs", "Nominated"),
    )
