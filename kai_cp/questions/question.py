"""The interface of a question, and its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_cp.json_types import Document
from kai_cp.report.section import Section


@dataclass(frozen=True, slots=True)
class SnapshotDetails:
    """A cluster at one time: its name, its ``decisions/1`` and its ``inspection/1``.

    ``owed``: by leaf queue, the pod groups that wait although what they need is within the fair share.
    """

    name: str
    decisions: Document
    inspection: Document
    owed: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SnapshotQuestion:
    """A question about a snapshot.

    ``rows``: key of the list in its document; ``label``: the name of a row under ``-o name``.
    """

    rows: str
    label: str
    ask: Callable[[SnapshotDetails], dict[str, Any]]
    headline: Callable[[Document], str]
    sections: Callable[[Document], Sequence[Section]]
