"""Admission of topologies: each alias names one level (1.4, 9.5)."""

from __future__ import annotations

from collections import Counter

from kai_cp.admission.request import AdmissionRequest, Refused, Verdict
from kai_cp.reader.fields import object_at, objects_at, text_at


def review(request: AdmissionRequest) -> Verdict:
    """Raise ``Refused`` for aliases that are not unique, or that equal a node label of the topology."""
    if request.operation == "DELETE":
        return Verdict(allowed=True)
    levels = objects_at(object_at(request.object, "spec"), "levels", "spec")
    labels = {text_at(level, "nodeLabel", "spec.levels") for level in levels}
    aliases = Counter(filter(None, (text_at(level, "alias", "spec.levels") for level in levels)))
    twice = [alias for alias, count in aliases.items() if count > 1]
    taken = [alias for alias in aliases if alias in labels]
    faults: list[str] = []
    if twice:
        faults.append(f"aliases must be unique within the topology; duplicated: [{' '.join(sorted(twice))}]")
    if taken:
        faults.append(f"an alias must not equal a nodeLabel; conflicting: [{' '.join(sorted(taken))}]")
    if faults:
        raise Refused(f"invalid topology aliases: {'; '.join(faults)}")
    return Verdict(allowed=True)
