"""Reduces a snapshot to a smaller one on which a fact still holds, for a report or a test.

Objects are removed in groups that belong together: a pod group with its pods and BindRequests, a node with
its pods, a queue, any other object alone. The search (Zeller's ddmin) removes halves first, then quarters,
and so on, until nothing more can be removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kai_cp.explain.draft import nearest
from kai_cp.explain.raw import group_of, key_of, metadata, spec_of
from kai_cp.json_types import Json
from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot

Removable = frozenset[tuple[str, int]]
"""Objects that leave together, by list and place in it."""
KINDS: Final = ("waiting", "served", "evicted", "skipped")
ANY: Final = "any"


class BadFact(ValueError):
    """A fact that cannot be parsed; the text shows the format."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that must still hold: ``kind`` (one of KINDS), ``subject`` (NAMESPACE/NAME), and ``reason`` of
    waiting: "" or ANY for any.
    """

    kind: str
    subject: str
    reason: str = ""

    @staticmethod
    def of(text: str) -> Fact:
        """The fact of a text: ``waiting NS/GROUP [REASON|any]``, ``served NS/GROUP``, ``evicted NS/POD`` or
        ``skipped OBJECT``.

        Raises ``BadFact`` for any other text.
        """
        kind, _, rest = text.strip().partition(" ")
        # Answers call a skipped object `Pod NS/NAME`.
        subject, _, reason = (rest.strip(), "", "") if kind == "skipped" else rest.strip().partition(" ")
        if kind not in KINDS or not subject or (reason and kind != "waiting"):
            raise BadFact(
                f"{text!r} is not a fact; write 'waiting NS/GROUP [REASON|any]', 'served NS/GROUP', "
                "'evicted NS/POD' or 'skipped OBJECT'"
            )
        return Fact(kind, subject, reason)

    def with_reason(self, plan: Plan) -> Fact:
        """The same fact with the reason why the pod group waits in a plan, if the fact names none."""
        if self.kind != "waiting" or self.reason:
            return self
        found = (entry.reason for entry in plan.unscheduled if str(entry.group) == self.subject)
        return replace(self, reason=next(found, ""))

    def instead(self, plan: Plan) -> str:
        """What is true of a plan in which the pod group does not wait for the stated reason."""
        if self.kind != "waiting":
            return ""
        now = replace(self, reason="").with_reason(plan).reason
        if now:
            return f"; the reason is {now}"
        return f"; no such pod group waits{nearest(self.subject, [str(e.group) for e in plan.unscheduled])}"

    def holds(self, snapshot: Snapshot, plan: Plan) -> bool:
        """Whether the fact holds."""
        match self.kind:
            case "waiting":
                return any(
                    str(entry.group) == self.subject and self.reason in ("", ANY, entry.reason)
                    for entry in plan.unscheduled
                )
            case "served":
                return any(str(d.group) == self.subject and d.kind != "Evict" for d in plan.decisions)
            case "evicted":
                return any(str(d.pod) == self.subject and d.kind == "Evict" for d in plan.decisions)
            case _:
                return any(self.subject in entry.item for entry in snapshot.set_aside)


def units(raw: Json) -> list[Removable]:
    """The groups of objects that may be removed, largest first."""
    objects = {kind: items for kind, items in raw["rawObjects"].items() if isinstance(items, list)}
    by_group: dict[str, set[tuple[str, int]]] = defaultdict(set)
    by_node: dict[str, set[tuple[str, int]]] = defaultdict(set)
    alone: list[set[tuple[str, int]]] = []
    for kind, items in objects.items():
        for i, item in enumerate(items):
            place = (kind, i)
            if not isinstance(item, dict):
                alone.append({place})
            elif kind == "podGroups":
                by_group[key_of(item)].add(place)
            elif kind == "pods" and (group := group_of(item)) is not None:
                by_group[group].add(place)
            elif kind == "bindRequests":
                pod = f"{metadata(item).get('namespace') or 'default'}/{spec_of(item).get('podName')}"
                by_group[_group_of_pod(objects, pod) or pod].add(place)
            elif kind == "nodes":
                by_node[key_of(item).rpartition("/")[2]].add(place)
            else:
                alone.append({place})
    for i, pod in enumerate(objects.get("pods") or ()):
        node = str(spec_of(pod).get("nodeName")) if isinstance(pod, dict) else ""
        if node in by_node:
            by_node[node].add(("pods", i))
    found = [*by_group.values(), *by_node.values(), *alone]
    return sorted(map(frozenset, found), key=lambda unit: (-len(unit), min(unit)))


def _group_of_pod(objects: Json, name: str) -> str | None:
    return next(
        (group_of(pod) for pod in objects.get("pods") or () if isinstance(pod, dict) and key_of(pod) == name),
        None,
    )


def without(raw: Json, gone: frozenset[tuple[str, int]]) -> dict[str, Any]:
    """The snapshot without these objects."""
    lists = {
        kind: [item for i, item in enumerate(items) if (kind, i) not in gone]
        if isinstance(items, list)
        else items
        for kind, items in raw["rawObjects"].items()
    }
    return {**raw, "rawObjects": lists}


def reduced(raw: Json, holds: Callable[[Json], bool], told: Callable[[int, int], None]) -> dict[str, Any]:
    """The smallest snapshot that the search finds. ``told`` gets the objects left and the tries so far."""
    left = units(raw)
    total = frozenset(place for unit in left for place in unit)
    gone: frozenset[tuple[str, int]] = frozenset()
    tries, size = 0, max(1, len(left) // 2)
    while left:
        shrunk = False
        for chunk in list(_chunks(left, size)):
            attempt = gone.union(*chunk)
            tries += 1
            if holds(without(raw, attempt)):
                gone, shrunk = attempt, True
                out = set(chunk)
                left = [unit for unit in left if unit not in out]
                told(len(total - gone), tries)
        if size == 1 and not shrunk:
            break
        size = max(1, min(size // 2, len(left) // 2))
    return without(raw, gone)


def _chunks(items: Sequence[Removable], size: int) -> Iterator[Sequence[Removable]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
