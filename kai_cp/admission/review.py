"""Passes each request to the judge of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kai_cp.admission import podgroups, pods, queues, topologies
from kai_cp.admission.request import AdmissionRequest, Refused, Verdict
from kai_cp.reader.fields import Malformed

_LONGEST: Final = 2_000
"""Characters of a message."""

KINDS: Final[Mapping[str, Callable[[AdmissionRequest], Verdict]]] = {
    "Pod": pods.review,
    "Queue": queues.review,
    "PodGroup": podgroups.review,
    "Topology": topologies.review,
}


def review(request: AdmissionRequest) -> Verdict:
    """The verdict; an unknown kind is allowed unchanged."""
    kind = request.object.get("kind")
    judge = KINDS.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or judge is None:
        return Verdict(allowed=True)
    return judged(kind, judge, request)


def judged(kind: str, judge: Callable[[AdmissionRequest], Verdict], request: AdmissionRequest) -> Verdict:
    """The verdict of one judge; an unreadable field is refused and named."""
    try:
        return judge(request)
    except Refused as problem:
        return Verdict(
            allowed=False, message=_short(str(problem)), warnings=tuple(map(_short, problem.warnings))
        )
    except Malformed as problem:
        return Verdict(allowed=False, message=_short(f"{kind} cannot be read: {problem}"))


def _short(text: str) -> str:
    """A shortened text: it quotes what a user wrote, which may be megabytes long."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
