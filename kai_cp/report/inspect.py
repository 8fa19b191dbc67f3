"""The first look at a snapshot: nodes, queues, and what waits, in fair order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from kai_cp.json_types import Document
from kai_cp.report.headline import as_of
from kai_cp.report.kinds import by_kind
from kai_cp.report.page import Page
from kai_cp.report.partition import partition
from kai_cp.report.reserved import longest_wait, over_time, reserved
from kai_cp.report.rolled_out import rolled_out
from kai_cp.report.section import Section, Shortening, ignored, skipped
from kai_cp.report.select import Selection
from kai_cp.report.terminal import age, amount, gpus
from kai_cp_models.shown import plural

_SCALE = {"cpu": (1000, "cores"), "memory": (2**30, "GiB"), "gpu": (1, "GPUs")}


def report(name: str, document: Document, resource: str, *, everything: bool = False) -> Page:
    """The whole view of an ``inspection/1``; queues are shown in one ``resource``."""
    groups = [waiter["podGroup"].partition("/")[0] for waiter in document["waiting"]]
    shorten = Shortening.of(groups, [node["name"] for node in document["nodes"]])
    sections = _sections(document, resource)
    return Page(_headline(name, document), as_of(document), sections, shorten, everything)


def as_answer(document: Document) -> dict[str, Any]:
    """An ``inspection/1`` as an answer that decides nothing."""
    return {
        "queues": {queue["name"]: queue for queue in document["queues"]},
        "decisions": [],
        "unscheduled": document["waiting"],
    }


def selected(document: Document, selection: Selection) -> dict[str, Any]:
    """The queues and waiting pod groups that are shown."""
    if not selection:
        return dict(document)
    chosen = selection.of(as_answer(document))
    queues = list(chosen["queues"].values())
    return {**document, "selected": chosen["selected"], "queues": queues, "waiting": chosen["unscheduled"]}


def _sections(document: Document, resource: str) -> Iterator[Section]:
    yield _waiting(document["waiting"])
    yield reserved(document.get("reservations") or (), document["now"])
    yield over_time(document.get("reservations") or (), document["now"])
    yield _queues(document["queues"], resource)
    yield rolled_out(document.get("rollouts") or (), document["now"])
    yield by_kind(document["queues"])
    yield _nodes(document["nodes"])
    yield _partition(document.get("migPartition"))
    yield skipped([(entry["object"], entry["reason"]) for entry in document["setAside"]])
    yield ignored(document.get("ignoredFields", {}))


def _headline(name: str, document: Document) -> Text:
    cluster = document["cluster"]
    text = Text.assemble((name, "bold"), ": ")
    used = f"{amount(cluster['gpusUsed'])} of {gpus(cluster['gpus'])} in use"
    text.append(
        f"{plural(cluster['nodes'], 'node')}, {used}; "
        f"{plural(cluster['queues'], 'queue')}; {plural(cluster['podGroups'], 'pod group')}, "
        f"{cluster['waitingPodGroups']:,} waiting; {plural(cluster['pods'], 'pod')}, "
        f"{cluster['runningPods']:,} running"
    )
    if document["setAside"]:
        text.append(f"; {plural(len(document['setAside']), 'object')} skipped", style="yellow")
    return text.append(".")


def _partition(advice: Document | None) -> Section:
    if advice is None:
        return partition(0, 0, ())
    nodes = ((node["node"], node["now"], node["then"]) for node in advice["nodes"])
    return partition(advice["podsNow"], advice["podsThen"], nodes)


def _nodes(nodes: Sequence[Document]) -> Section:
    rows = [
        (
            node["name"],
            f"{amount(node['gpus']['used'])} / {amount(node['gpus']['allocatable'])}",
            str(node["sharedGpus"] or ""),
            f"{node['cpu']['used'] / 1000:,.1f} / {node['cpu']['allocatable'] / 1000:,.0f}",
            f"{node['memory']['used'] / 2**30:,.1f} / {node['memory']['allocatable'] / 2**30:,.0f}",
            f"{node['pods']['used']} / {node['pods']['allocatable']}",
            Text(", ".join(node["refuses"]) or "ready", style="yellow" if node["refuses"] else ""),
        )
        for node in nodes
    ]
    numbers = ("GPUs", "Shared", "CPUs", "Memory [GiB]", "Pods")
    return Section(
        "Nodes: used / allocatable",
        ("Node", *numbers, "State"),
        rows,
        right=numbers,
        fixed=("Node", "State"),
        drop=("Pods", "Shared", "Memory [GiB]", "CPUs"),
    )


def _queues(queues: Sequence[Document], resource: str) -> Section:
    scale, unit = _SCALE[resource]

    def shown(value: float) -> str:
        return amount(value) if value == -1 else amount(value / scale)

    rows = []
    for queue in queues:
        of = queue[resource]
        rows.append(
            (
                "  " * queue["depth"] + queue["name"],
                shown(of["quota"]),
                shown(of["limit"]),
                amount(of["overQuotaWeight"]),
                shown(of["fairShare"]),
                Text(shown(of["allocated"]), style="yellow" if of["allocated"] > of["fairShare"] else ""),
                str(queue["priority"]),
                str(queue["waitingPodGroups"] or ""),
            )
        )
    numbers = ("Quota", "Limit", "Weight", "Fair share", "Used", "Priority", "Waiting")
    return Section(
        f"Queues, in {unit}",
        ("Queue", *numbers),
        rows,
        right=numbers,
        fixed=("Queue",),
        drop=("Priority", "Weight", "Limit"),
    )


def _waiting(line: Sequence[Document]) -> Section:
    rows: list[tuple[str, ...]] = [
        (
            str(waiter["position"] or "-"),
            waiter["podGroup"],
            waiter["queue"],
            str(waiter["priority"]),
            f"{waiter['nextPods']} of {waiter['pendingPods']}",
            amount(waiter["gpus"]),
            age(waiter["ageSeconds"]),
            longest_wait(waiter),
            waiter["remark"] or waiter.get("noBoundBecause") or "",
        )
        for waiter in line
    ]
    remarks = any(row[-1] for row in rows)
    columns: tuple[str, ...] = (
        "#",
        "Pod group",
        "Queue",
        "Priority",
        "Next pods",
        "GPUs",
        "Age",
        "Waits at most",
        "Remark",
    )
    if not any(row[-2] for row in rows):
        columns = (*columns[:-2], columns[-1])
        rows = [(*row[:-2], row[-1]) for row in rows]
    return Section(
        "Waiting, in fair order",
        columns if remarks else columns[:-1],
        rows if remarks else [row[:-1] for row in rows],
        right=("#", "Priority", "Next pods", "GPUs", "Age", "Waits at most"),
        fixed=("Pod group", "Queue"),
        note="Remark" if remarks else "",
        drop=("Priority", "Next pods", "Age"),
    )
