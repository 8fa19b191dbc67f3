"""The part of an answer that a user asked to see: some queues, namespaces or pod groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_cp.explain.draft import nearest
from kai_cp.json_types import Document
from kai_cp.report.rows import pod_of
from kai_cp_models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Selection:
    """Names of queues (those below count too), namespaces, and pod groups (``[NAMESPACE/]NAME``)."""

    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.queues or self.namespaces or self.groups)

    def unused(
        self, document: Document, snapshot: str, known: Callable[[], Collection[str]]
    ) -> tuple[list[str], bool]:
        """A sentence for every name of which the answer has nothing, and whether a queue or pod group does
        not exist: most likely a typing error. ``known``: the pod groups and pods, as ``NAMESPACE/NAME``; ()
        if unknown. A namespace may exist without any of them.
        """
        said, missing = self._quiet(document, snapshot, known)
        queues = [
            f"--queue: {snapshot} has no queue {name}{nearest(name, [*document['queues']])}"
            for name in self.queues
            if name not in document["queues"]
        ]
        return [*said, *queues], missing or bool(queues)

    def _quiet(
        self, document: Document, snapshot: str, known: Callable[[], Collection[str]]
    ) -> tuple[list[str], bool]:
        entries = [*map(_decided, document["decisions"]), *map(_listed, document["unscheduled"])]
        groups = sorted({group for group, _ in entries})
        spaces, plain = (sorted({group.partition("/")[i] for group in groups}) for i in (0, 2))
        said, missing = [], False
        for option, chosen, names in (
            *((f"--namespace {name}", Selection(namespaces=(name,)), spaces) for name in self.namespaces),
            *((f"--group {g}", Selection(groups=(g,)), groups if "/" in g else plain) for g in self.groups),
        ):
            part = chosen.of(document)
            if not part["decisions"] and not part["unscheduled"]:
                present = known()
                there = not present or any(chosen.takes(key, None, set()) for key in present)
                missing = missing or bool(chosen.groups and not there)
                what = "nothing of that name that waits or changes" if there else "nothing of that name"
                said.append(f"{option}: {snapshot} has {what}{nearest(option.partition(' ')[2], names)}")
        return said, missing

    def of(self, document: Document) -> dict[str, Any]:
        """The requested part of the document, which is marked as a part (``selected``); everything by
        default. An eviction is part of the pod group that loses the pod, and of those that it is for.
        """
        if not self:
            return dict(document)
        queues = self._below(document["queues"])
        queue_of = dict(map(_decided, document["decisions"])) | dict(map(_listed, document["unscheduled"]))

        def chosen(key: str, owner: Callable[[Document], tuple[str, str | None]]) -> list[Document]:
            return [entry for entry in document.get(key, ()) if self.takes(*owner(entry), queues)]

        evicted = {
            pod_of(decision)
            for decision in document["decisions"]
            if any(self.takes(group, queue_of.get(group), queues) for group in decision.get("for", ()))
        }
        parts = {
            # A pod that is moved keeps both its decisions, because without its new place it would seem to be
            # lost.
            "decisions": [
                decision
                for decision in document["decisions"]
                if self.takes(*_decided(decision), queues) or pod_of(decision) in evicted
            ],
            "unscheduled": chosen("unscheduled", _listed),
            "reservations": chosen("reservations", _listed),
            "draining": chosen("draining", _listed),
            "rollouts": chosen("rollouts", lambda entry: (f"{entry['namespace']}/", entry["queue"])),
        }
        placed = {_decided(decision)[0] for decision in parts["decisions"]}
        parts["localities"] = [
            entry for entry in document.get("localities", ()) if entry["podGroup"] in placed
        ]
        concerned = {entry.get("queue") for key in ("decisions", "unscheduled") for entry in parts[key]}
        asked = {"queues": self.queues, "namespaces": self.namespaces, "podGroups": self.groups}
        return {
            **document,
            "selected": {key: list(names) for key, names in asked.items()},
            **{key: part for key, part in parts.items() if key in document},
            "queues": {
                name: queue
                for name, queue in document["queues"].items()
                if name in (queues if self.queues else concerned)
            },
        }

    def _below(self, queues: Mapping[str, Document]) -> set[str]:
        found = set(self.queues)
        while more := {n for n, q in queues.items() if q.get("parent") in found and n not in found}:
            found |= more
        return found

    def takes(self, group: str, queue: str | None, queues: set[str]) -> bool:
        """Whether an entry about a pod group of a queue is requested."""
        namespace, _, name = group.partition("/")
        return (
            (not self.queues or queue in queues)
            and (not self.namespaces or namespace in self.namespaces)
            and (not self.groups or group in self.groups or name in self.groups)
        )


def keys_of(snapshot: Snapshot) -> set[str]:
    """The pod groups and pods of a snapshot, also those that were set aside, as ``NAMESPACE/NAME``."""
    aside = (entry.item.partition(" ")[2] for entry in snapshot.set_aside)
    return {*(str(one.key) for one in snapshot.groups), *(str(one.key) for one in snapshot.pods), *aside}


def _listed(entry: Document) -> tuple[str, str | None]:
    return entry["podGroup"], entry.get("queue")


def _decided(decision: Document) -> tuple[str, str | None]:
    name = decision["podGroup"] or decision["pod"]
    return f"{decision['namespace']}/{name}", decision.get("queue")


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """The values of an option that may be given several times, or once with commas."""
    return tuple(part for value in values or () for part in value.split(",") if part)
