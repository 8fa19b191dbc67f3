"""Refusals: why a pod group got nothing, and what shows that there is nothing for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kai_cp_models.pods import Pod


@dataclass(frozen=True, slots=True)
class Proof:
    """What shows that a pod group gets no places; ``certificate``: what excludes them."""

    certificate: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod group got nothing in an action, as known when it was refused."""

    reason: str
    message: str = ""
    pod: Pod | None = None
    """The pod that found no node, to be explained at the end."""
    proof: Proof | None = None
    """Of allocate: that there are no places beside what it has admitted, while nothing leaves. What no plan
    serves is shown at the end (``kai_cp_models.proof``)."""
    details: dict[str, Any] = field(default_factory=dict)
