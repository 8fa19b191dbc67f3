"""The interface of a question, and its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kai_cp.json_types import Document
from kai_cp.report.section import Section
from kai_cp_models.queries.shares import OwedGroups


@dataclass(frozen=True, slots=True)
class SnapshotDetails:
    """A cluster at one time: its name, its ``decisions/1`` and its ``inspection/1``."""

    name: str
    decisions: Document
    inspection: Document
    owed: OwedGroups


@dataclass(frozen=True, slots=True)
class SnapshotQuestion:
    """A question about a snapshot.

    ``rows``: key of the list in its document; ``label``: the name of a row under ``-o name``; ``columns``:
    the keys that every row has, for the header of ``-o csv`` where there is no row.
    """

    rows: str
    label: str
    columns: Sequence[str]
    ask: Callable[[SnapshotDetails], dict[str, Any]]
    headline: Callable[[Document], str]
    sections: Callable[[Document], Sequence[Section]]
