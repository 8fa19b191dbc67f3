"""One sentence with numbers and names: why a pod group waits."""

from __future__ import annotations

from typing import Final

import numpy as np

from kai_cp_models.queries.why import (
    VICTIM_RULES,
    Blocking,
    Families,
    Situation,
    asked_classes,
    free_after,
    kind_of,
    ordered,
    subject_of,
)
from kai_cp_models.shown import amount
from kai_cp_models.snapshot import GPU, MILLI, PodGroup, Unscheduled

_KEPT: Final = {
    "priority": "what runs in its queue has no lower priority",
    "non-preemptible": "what runs there cannot be preempted",
    "fair-share": "its queue may not take from others (fair share)",
    "min-runtime": "what could be evicted is protected by its minimum runtime",
    "pdb": "a PodDisruptionBudget protects what could be evicted",
    "delay": "it may not evict others yet (preemption delay)",
    "consolidation": "more pod groups would have to move than is allowed",
    "order": "the free capacity of this cycle goes to those ahead of it",
}


def sentence(situation: Situation, group: PodGroup, why: Unscheduled | None, found: Blocking) -> str:
    """Why the group waits; what the cycle says where nothing is proved about its room."""
    engine = why.message if why is not None else ""
    if not found.sure:
        note = "there was no time to find out which rules block it"
        return f"{engine}; {note}" if engine else note
    if not found.proved:
        return engine or "no plan was found"
    first = found.sets[0]
    kinds = {kind_of(family) for family in first}
    if (
        kinds & {"queue", "readiness", "backoff", "dependency", "limit", "kind-limit", "quota"}
        or "room" not in kinds
    ):
        return engine or " + ".join(ordered(first))
    more = "" if found.complete else "other sets of rules may block it, too"
    return "; ".join(part for part in (_room(situation, group, first), _victims(first), more) if part)


def _room(situation: Situation, group: PodGroup, families: Families) -> str:
    """What is asked, what is free in all, and what is free on one node."""
    snapshot = situation.snapshot
    classes = asked_classes(situation, group)
    free = np.maximum(free_after(situation), 0)
    parts = []
    for family in ordered(families):
        if kind_of(family) != "room":
            continue
        d = snapshot.dimensions.index(subject_of(family))
        each = max((item.example.spec.requests[d] for item in classes), default=0)
        asked = sum(item.example.spec.requests[d] * item.count for item in classes)
        pods = sum(item.count for item in classes)
        unit = (
            ("GPU" if asked == MILLI else "GPUs")
            if d == GPU
            else "CPUs"
            if d == 0
            else snapshot.dimensions[d]
        )
        if not each:
            parts.append("no GPU has enough free for its share")
            continue
        usable = np.ones(len(free), dtype=bool)
        for item in classes:
            for rule, refused in item.refused.items():
                if rule in families:
                    usable &= ~refused
        total, most = int(free[usable, d].sum()), int(free[usable, d].max(initial=0))
        wants = f"{amount(d, asked)} {unit}" if pods == 1 else f"{pods} x {amount(d, each)} {unit}"
        where = "" if usable.all() else " on nodes that accept it"
        if total >= asked:
            parts.append(
                f"needs {wants}; {amount(d, total)} are free{where}, at most {amount(d, most)} on one node"
            )
        else:
            parts.append(f"needs {wants}; {amount(d, total)} are free{where}")
    scope = next((s for item in classes for s in item.scopes if s.constraint and s.constraint.required), None)
    if scope is not None and scope.constraint is not None and any(kind_of(f) == "topology" for f in families):
        parts.append(f"all of it in one {scope.constraint.required}")
    return "; ".join(parts)


def _victims(families: Families) -> str:
    """What keeps others where they are."""
    if not any(kind_of(family) in VICTIM_RULES for family in families):
        return "impossible on this hardware, whatever ends or is stopped"
    words = [
        f"action {subject_of(family)} is off" if kind_of(family) == "action" else _KEPT[kind_of(family)]
        for family in ordered(families)
        if kind_of(family) in VICTIM_RULES
    ]
    return "; ".join(words)
