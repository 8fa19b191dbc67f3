"""What the next cycle finds as annotations of pod groups: reservations, whose starts in the future are stored
nowhere else (12.7), restarts, and places that came to nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kai_cp.kube.api import api_objects
from kai_cp.reader.annotations import SCHEMA, NoteDocument, Unreadable, failures_noted
from kai_cp_models.plan import Plan, Reservation
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, PodKey
from kai_cp_models.records.notes import RESERVATION, Expired
from kai_cp_models.snapshot import PodGroup, Snapshot

_HOLDING: Final = ("made", "kept", "earlier", "later")


def promises(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[GroupKey, Mapping[str, str | None]]]:
    """Annotations to be set (None: removed) so that the next cycle finds what this one promised.

    There are none where reservations are off. A holder that has started keeps its annotation until it is
    bound. One whose reservation was given up keeps the time of that, so that it holds nothing for a while.
    """
    if plan.reservations is None:
        return
    entries = {entry.group: entry for entry in plan.reservations}
    for group in snapshot.groups:
        entry = entries.get(group.key)
        if entry is not None and entry.state in _HOLDING:
            yield group.key, {RESERVATION: _text(entry, group.notes.cause)}
        elif entry is not None and entry.idle is not None:
            yield group.key, {RESERVATION: _closed(entry)}
        elif entry is not None and entry.expired is not None:
            yield group.key, {RESERVATION: _expired(entry.expired)}
        elif group.notes.reserved and _is_over(snapshot, plan, group, entry):
            yield group.key, {RESERVATION: None}


def _is_over(snapshot: Snapshot, plan: Plan, group: PodGroup, entry: Reservation | None) -> bool:
    if entry is not None and entry.state == "started":
        nominated = {one.pod for one in plan.decisions if one.kind == "Nominate"}
        return not any(pod.key in nominated for pod in snapshot.members[group.key])
    if any(pod.status in ACTIVE_ALLOCATED for pod in snapshot.members[group.key]):
        return True
    return entry is not None or not isinstance(group.notes.reservation, Expired)


def _text(entry: Reservation, noted: str | None) -> str:
    def instant(seconds: float | None) -> str | None:
        # A start written a fraction of a second too early could not be kept.
        return None if seconds is None else api_objects.rfc3339(math.ceil(seconds))

    document = {
        "schema": SCHEMA,
        "start": instant(entry.start),
        "promised": instant(entry.promised),
        "made": None if entry.made is None else api_objects.rfc3339(entry.made),
        **_places(entry),
    }
    late = entry.start is not None and entry.promised is not None and entry.start > entry.promised
    if late and (entry.cause or noted):
        # It is reported when the start comes; the scheduler may have been restarted before.
        document["cause"] = entry.cause or noted
    return json.dumps(document, separators=(",", ":"))


def _places(entry: Reservation) -> Mapping[str, Any]:
    """The nodes that are held, and the groups there that are not backfill."""
    nodes = {name: round(gpus) for name, gpus in sorted(entry.nodes.items())}
    return {"nodes": nodes, **({"beside": entry.beside} if entry.beside else {})}


def moved_note(before: str | None, now: float, count: int, pods: int) -> str:
    """The note of ``count`` more restarts for defragmentation, after which ``pods`` shall run again."""
    hour = api_objects.rfc3339(now - 3600)
    try:
        found = NoteDocument.of(before or "", "restarts").values("at")
        recent = [at for at in found if isinstance(at, str) and at > hour]
    except Unreadable:
        recent = []
    stamps = [*recent, *[api_objects.rfc3339(now)] * count]
    return json.dumps({"pods": pods, "at": stamps}, separators=(",", ":"))


def lost_places(plan: Plan, lost: Callable[[PodKey], bool]) -> dict[GroupKey, PodKey]:
    """The pod groups for which the plan evicts others although a pod of theirs has ``lost`` a place before;
    with that pod."""
    given: dict[tuple[GroupKey, str], list[PodKey]] = {}
    for one in plan.decisions:
        if one.kind == "Nominate" and one.group is not None:
            given.setdefault((one.group, one.action), []).append(one.pod)
    evicting = {
        (key, one.action): None for one in plan.decisions if one.kind == "Evict" for key in one.triggers
    }
    found = ((key[0], next(filter(lost, given.get(key, ())), None)) for key in evicting)
    return {group: pod for group, pod in found if pod is not None}


def failures_of(note: str | None, uid: str) -> int:
    """How often in a row the pod with this uid failed, as the annotation of its group says."""
    noted = failures_noted(note)
    return noted.times if noted is not None and noted.uid == uid else 0


def failures_note(uid: str, times: int, now: float) -> str:
    """The note of a failure now, the ``times``-th in a row."""
    return json.dumps({"uid": uid, "times": times, "last": api_objects.rfc3339(now)})


def _closed(entry: Reservation) -> str:
    assert entry.idle is not None
    assert entry.made is not None
    document = {
        "schema": SCHEMA,
        "made": api_objects.rfc3339(entry.made),
        **_places(entry),
        "idle": {
            "since": api_objects.rfc3339(entry.idle.since),
            "gpus": round(entry.idle.gpus),
            "gpuHours": round(entry.idle.gpu_hours, 3),
        },
    }
    return json.dumps(document, separators=(",", ":"))


def _expired(seconds: float) -> str:
    return json.dumps({"schema": SCHEMA, "expired": api_objects.rfc3339(seconds)}, separators=(",", ":"))
