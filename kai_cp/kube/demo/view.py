"""The demonstration's screen: nodes, queues, pod groups, and the last events."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.demo.story import GPUS, NAMESPACE, RACK
from kai_cp.kube.scheduler.cache import ClusterCache

COLOURS: Final = ("green", "cyan", "magenta", "yellow", "blue", "red")
EVENTS: Final = 8


def gpus_of(pod: Object) -> float:
    """The number of GPUs that a pod requests."""
    if keys.GPU_FRACTION in api_objects.annotations_of(pod):
        return float(api_objects.annotations_of(pod)[keys.GPU_FRACTION])
    return sum(float(needs.get(keys.GPU) or 0) for needs in api_objects.limits(pod))


class DemoView:
    """Draws the content of a cache."""

    def __init__(self, cache: ClusterCache, api: Transport) -> None:
        self._cache = cache
        self._api = api
        self._colours: dict[str, str] = {}

    def draw(self, headline: str) -> Group:
        """The screen now."""
        pods = [p for p in self._cache.stores[r.PODS].all() if p["metadata"]["namespace"] == NAMESPACE]
        groups = {g["metadata"]["name"]: g for g in self._cache.stores[r.POD_GROUPS].all()}
        top = Table.grid(padding=(0, 2))
        top.add_row(self._nodes(pods, groups), Group(self._queues(pods, groups), self._groups(pods, groups)))
        return Group(Panel(Text(headline, style="bold"), title="kai-cp demo-cluster"), top, self._events())

    def _colour(self, queue: str) -> str:
        return self._colours.setdefault(queue, COLOURS[len(self._colours) % len(COLOURS)])

    def _nodes(self, pods: list[Object], groups: dict[str, Object]) -> Table:
        table = Table("node", "rack", "GPUs", title="Nodes")
        held: dict[str, Counter[str]] = {}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node:
                queue = _queue(pod, groups)
                mark = f"{queue}~" if "deletionTimestamp" in pod["metadata"] else queue
                held.setdefault(node, Counter())[mark] += round(gpus_of(pod) * 1000)
        for node in self._cache.stores[r.NODES].all():
            name = node["metadata"]["name"]
            bar = Text()
            used = 0
            for mark, amount in sorted(held.get(name, Counter()).items()):
                cells = max(1, round(amount / 1000))
                used += cells
                bar.append(("▒" if mark.endswith("~") else "█") * cells, style=self._colour(mark.rstrip("~")))
            bar.append("·" * max(0, GPUS - used), style="dim")
            table.add_row(name, api_objects.labels_of(node).get(RACK, ""), bar)
        return table

    def _queues(self, pods: list[Object], groups: dict[str, Object]) -> Table:
        table = Table("queue", "deserved", "running", "waiting", title="Queues (GPUs)")
        running: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for pod in pods:
            target = running if pod["spec"].get("nodeName") else waiting
            target[_queue(pod, groups)] += round(gpus_of(pod) * 1000)
        for queue in self._cache.stores[r.QUEUES].all():
            name = queue["metadata"]["name"]
            quota = queue["spec"]["resources"]["gpu"]["quota"]
            label = Text(name, style=self._colour(name) if name in running or name in waiting else "dim")
            table.add_row(label, f"{quota:g}", f"{running[name] / 1000:g}", f"{waiting[name] / 1000:g}")
        return table

    def _groups(self, pods: list[Object], groups: dict[str, Object]) -> Table:
        table = Table("pod group", "queue", "min", "running", "why it waits", title="Pod groups")
        running: Counter[str] = Counter()
        total: Counter[str] = Counter()
        surplus: dict[str, str] = {}
        for pod in pods:
            name = api_objects.annotations_of(pod).get(keys.POD_GROUP, "")
            total[name] += 1
            said = api_objects.condition((pod.get("status") or {}).get("conditions"), "PodScheduled") or {}
            if not pod["spec"].get("nodeName") and said.get("message"):
                surplus[name] = str(said["message"])
            if (pod.get("status") or {}).get("phase") == "Running":
                running[name] += 1
        for name, group in groups.items():
            reasons = (group.get("status") or {}).get("schedulingConditions") or []
            # A pod group that runs in part has no condition; its pods that wait have one (9.7).
            why = reasons[-1]["reasons"][0]["reason"] if reasons else surplus.get(name, "")
            table.add_row(
                name,
                group["spec"]["queue"],
                str(group["spec"]["minMember"]),
                f"{running[name]}/{total[name]}",
                why,
            )
        return table

    def _events(self) -> Table:
        table = Table("about", "reason", "message", title="Last events", expand=True)
        items = (self._api.raw(r.EVENTS.path(NAMESPACE)) or {}).get("items") or []
        items.sort(key=lambda e: (e.get("lastTimestamp") or "", int(e["metadata"]["resourceVersion"])))
        # The newest event about each object.
        newest = {(event["involvedObject"]["name"], event["reason"]): event for event in items}
        said: dict[tuple[str, str], list[str]] = {}
        for event in newest.values():
            key = (event["reason"], event["message"])
            # The latest event comes last; equal events about several objects are one line.
            said[key] = [*said.pop(key, []), event["involvedObject"]["name"]]
        for (reason, message), about in list(said.items())[-EVENTS:]:
            more = f" and {len(about) - 1} more" if len(about) > 1 else ""
            table.add_row(f"{about[-1]}{more}", reason, message[:120])
        return table


def _queue(pod: Object, groups: dict[str, Object]) -> str:
    group = groups.get(api_objects.annotations_of(pod).get(keys.POD_GROUP, ""))
    return str(group["spec"]["queue"]) if group is not None else "?"
