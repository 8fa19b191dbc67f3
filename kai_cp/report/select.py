"""The part of an answer that a user asked to see: some queues, namespaces or pod groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_cp.json_types import Document


@dataclass(frozen=True, slots=True)
class Selection:
    """Names of queues (those below count too), namespaces, and pod groups (``[NAMESPACE/]NAME``)."""

    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.queues or self.namespaces or self.groups)

    def unknown(self, document: Document) -> list[str]:
        """Names of queues that the answer does not know: most likely typing errors."""
        return [name for name in self.queues if name not in document["queues"]]

    def of(self, document: Document) -> dict[str, Any]:
        """The requested part of the document, which is marked as a part (``selected``); everything by
        default."""
        if not self:
            return dict(document)
        queues = self._below(document["queues"])
        chosen = {"queues": self.queues, "namespaces": self.namespaces, "podGroups": self.groups}
        return {
            **document,
            "selected": {key: list(names) for key, names in chosen.items()},
            "decisions": [d for d in document["decisions"] if self._takes(*_owner(d), queues)],
            "unscheduled": [
                entry
                for entry in document["unscheduled"]
                if self._takes(entry["podGroup"], entry.get("queue"), queues)
            ],
            "localities": [
                entry
                for entry in document.get("localities", ())
                if self._takes(entry["podGroup"], None, None)
            ],
            "queues": {
                name: queue for name, queue in document["queues"].items() if not self.queues or name in queues
            },
        }

    def _below(self, queues: Mapping[str, Document]) -> set[str]:
        found = set(self.queues)
        while more := {n for n, q in queues.items() if q.get("parent") in found and n not in found}:
            found |= more
        return found

    def _takes(self, group: str, queue: str | None, queues: set[str] | None) -> bool:
        """Whether an entry about a pod group of a queue is requested; ``queues`` None: of any queue."""
        namespace, _, name = group.partition("/")
        return (
            (queues is None or not self.queues or queue in queues)
            and (not self.namespaces or namespace in self.namespaces)
            and (not self.groups or group in self.groups or name in self.groups)
        )


def _owner(decision: Document) -> tuple[str, str | None]:
    name = decision["podGroup"] or decision["pod"]
    return f"{decision['namespace']}/{name}", decision.get("queue")


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """The values of an option that may be given several times, or once with commas."""
    return tuple(part for value in values or () for part in value.split(",") if part)
