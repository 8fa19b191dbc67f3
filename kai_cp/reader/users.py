"""Users inside a queue: every user of a leaf queue becomes a queue below it (docs/users.md).

The hierarchical fair share, the order and the eviction rules then treat it like any queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kai_cp.reader.notes import Identity, Notes
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.records.notes import USERS, UserTerms, unread_of
from kai_cp_models.snapshot import PodGroup, Queue, Shares

EVERY: Final = "*"
"""In the annotation: each user that it does not name."""
NO_USER: Final = "(none)"
"""User of pod groups without the label; no label can be equal to it."""


_PLAIN: Final = UserTerms()


def divided(
    groups: Mapping[Identity, PodGroup], queues: Mapping[str, Queue], notes: Notes
) -> tuple[dict[Identity, PodGroup], dict[str, Queue]]:
    """Pod groups and queues with a queue for each user of a leaf queue, called ``QUEUE/USER``."""
    parents = {queue.parent for queue in queues.values()}
    for name, queue in sorted(queues.items()):
        for one in unread_of(queue.notes, (USERS,)):
            notes.aside(f"Queue {name}", one.reason)
    found, theirs = dict(groups), dict(queues)
    for key, group in sorted(groups.items()):
        if group.queue not in queues or group.queue in parents:
            continue
        user = group.user or NO_USER
        name = f"{group.queue}/{user}"
        found[key] = replace(group, queue=name)
        known = theirs.get(name)
        created = group.created if known is None else min(known.created, group.created)
        theirs[name] = _queue(name, group.queue, user, created, queues[group.queue].notes.users or {})
    return found, theirs


def _queue(name: str, parent: str, user: str, created: float, terms: Mapping[str, UserTerms]) -> Queue:
    """A user's queue: no quota of its own, a weight, and a limit if there is one."""
    mine = terms.get(user) or terms.get(EVERY, _PLAIN)
    return Queue(
        name,
        parent,
        created,
        limit=Shares(UNLIMITED, UNLIMITED, UNLIMITED if mine.gpu_limit is None else mine.gpu_limit),
        weight=Shares(mine.weight, mine.weight, mine.weight),
        user=user,
    )
