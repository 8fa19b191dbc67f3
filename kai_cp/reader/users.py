"""Users inside a queue: every user of a leaf queue becomes a queue of its own below it (docs/users.md).

From here on the hierarchical fair share, the order and the rules of eviction are those of any queue.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kai_cp.reader.fields import Malformed, shown
from kai_cp.reader.notes import Notes
from kai_cp_models.snapshot import UNLIMITED, GroupKey, PodGroup, Queue, Shares

NOTE: Final = "kai-cp/users"
EVERY: Final = "*"
"""In the annotation: each user that it does not name."""
NO_USER: Final = "(none)"
"""User of pod groups without the label; no label can be equal to it."""
_MOST: Final = 1e9


@dataclass(frozen=True, slots=True)
class Terms:
    """What a queue grants a user: weight beside the others, and most GPUs; -1: any number."""

    weight: float = 1.0
    gpu_limit: float = UNLIMITED


_PLAIN: Final = Terms()


def divided(
    groups: Mapping[GroupKey, PodGroup], queues: Mapping[str, Queue], notes: Notes
) -> tuple[dict[GroupKey, PodGroup], dict[str, Queue]]:
    """Pod groups and queues with a queue for each user of a leaf queue, called ``QUEUE/USER``."""
    parents = {queue.parent for queue in queues.values()}
    terms = {name: _terms(queue, notes) for name, queue in sorted(queues.items()) if _note(queue) is not None}
    found, theirs = dict(groups), dict(queues)
    for key, group in sorted(groups.items()):
        if group.queue not in queues or group.queue in parents:
            continue
        user = group.user or NO_USER
        name = f"{group.queue}/{user}"
        found[key] = replace(group, queue=name)
        known = theirs.get(name)
        created = group.created if known is None else min(known.created, group.created)
        theirs[name] = _queue(name, group.queue, user, created, terms.get(group.queue, {}))
    return found, theirs


def _queue(name: str, parent: str, user: str, created: float, terms: Mapping[str, Terms]) -> Queue:
    """A user's queue: nothing deserved of its own, a weight, and a limit if there is one."""
    mine = terms.get(user) or terms.get(EVERY, _PLAIN)
    return Queue(
        name,
        parent,
        created,
        limit=Shares(UNLIMITED, UNLIMITED, mine.gpu_limit),
        weight=Shares(mine.weight, mine.weight, mine.weight),
        user=user,
    )


def _note(queue: Queue) -> str | None:
    return dict(queue.notes).get(NOTE)


def _terms(queue: Queue, notes: Notes) -> dict[str, Terms]:
    field = f"metadata.annotations[{NOTE}]"
    try:
        document = json.loads(_note(queue) or "")
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        notes.aside(f"Queue {queue.name}", f"{field}: is not a JSON object of users; treated as absent")
        return {}
    found: dict[str, Terms] = {}
    for user, entry in sorted(document.items()):
        try:
            found[user] = _read(entry, f"{field}.{user}")
        except Malformed as problem:
            notes.aside(f"Queue {queue.name}", f"{problem}; treated as absent")
    return found


def _read(entry: Any, field: str) -> Terms:
    if not isinstance(entry, dict):
        raise Malformed(field, f"{shown(entry)} is not an object with weight or gpuLimit")
    for name in entry:
        if name not in ("weight", "gpuLimit"):
            raise Malformed(field, f"there is no {shown(name)}, only weight and gpuLimit")
    weight, limit = entry.get("weight", 1.0), entry.get("gpuLimit", UNLIMITED)
    if not _number(weight) or not 0 < weight <= _MOST:
        raise Malformed(f"{field}.weight", f"{shown(weight)} is not a number above 0")
    if not _number(limit) or not (limit == UNLIMITED or 0 <= limit <= _MOST):
        raise Malformed(f"{field}.gpuLimit", f"{shown(limit)} is not a number of GPUs; -1 is any number")
    return Terms(float(weight), float(limit))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
