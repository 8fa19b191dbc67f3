"""What explain and what-if read from raw objects: names, pod groups, pods with a place, declared ends."""

from __future__ import annotations

import contextlib

from kai_cp.json_types import Json, Object
from kai_cp.keys import POD_GROUP, SUBGROUP
from kai_cp.reader.times import go_duration, seconds_of
from kai_cp_models.records.notes import EXPECTED


def objects_of(raw: Json, kind: str) -> list[Object]:
    """The objects of a kind in a snapshot; what is no object is left out."""
    found = raw["rawObjects"].get(kind)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def metadata(item: Json) -> Json:
    """``metadata`` of an object; empty when it is none."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def spec_of(item: Json) -> Json:
    """``spec`` of an object; empty when it is none."""
    found = item.get("spec")
    return found if isinstance(found, dict) else {}


def name_of(item: Json) -> str:
    """The name of an object."""
    return str(metadata(item).get("name") or "")


def key_of(item: Json) -> str:
    """``namespace/name`` of an object."""
    return f"{metadata(item).get('namespace') or 'default'}/{name_of(item)}"


def notes_of(item: Json) -> Json:
    """Annotations of an object."""
    found = metadata(item).get("annotations")
    return found if isinstance(found, dict) else {}


def labels_of(item: Json) -> Json:
    """Labels of an object."""
    found = metadata(item).get("labels")
    return found if isinstance(found, dict) else {}


def group_of(pod: Json) -> str | None:
    """``namespace/name`` of a pod's pod group."""
    name = notes_of(pod).get(POD_GROUP)
    return f"{metadata(pod).get('namespace') or 'default'}/{name}" if name else None


def subgroup_of(pod: Json) -> str:
    """The subgroup of a pod."""
    return str(labels_of(pod).get(SUBGROUP) or "default")


def alive(pod: Json) -> bool:
    """Whether the pod runs or waits."""
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase") in ("Running", "Pending")


def holds(pod: Json) -> bool:
    """Whether the pod has a place and keeps it."""
    return alive(pod) and bool(spec_of(pod).get("nodeName")) and not metadata(pod).get("deletionTimestamp")


def known_ends(raw: Json) -> dict[str, float | None]:
    """When the running pod groups end: seconds since the epoch, None where it is not declared.

    The latest over the running pods of start plus span; none if one pod declares none.
    """
    notes = {key_of(group): notes_of(group) for group in objects_of(raw, "podGroups")}
    found: dict[str, float | None] = {}
    for pod in objects_of(raw, "pods"):
        group = group_of(pod)
        if group is None or group not in notes or not holds(pod):
            continue
        end = _end(pod, notes[group])
        if group not in found:
            found[group] = end
        elif end is None or found[group] is None:
            found[group] = None
        else:
            found[group] = max(end, found[group] or end)
    return found


def _end(pod: Json, group_notes: Json) -> float | None:
    declared = notes_of(pod).get(EXPECTED) or group_notes.get(EXPECTED)
    spans: list[float] = []
    if declared:
        with contextlib.suppress(ValueError):
            spans.append(go_duration(str(declared), days=True))
    deadline = spec_of(pod).get("activeDeadlineSeconds")
    if isinstance(deadline, int | float) and not isinstance(deadline, bool):
        spans.append(float(deadline))
    spans = [span for span in spans if span > 0]
    status = pod.get("status")
    start = status.get("startTime") if isinstance(status, dict) else None
    if not spans or not isinstance(start, str):
        return None
    try:
        return seconds_of(start) + min(spans)
    except (ValueError, OverflowError):
        return None
