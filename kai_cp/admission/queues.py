"""Admission of queues: resources are required, quotas should add up, parents stay (1.1, 9.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kai_cp.admission.request import AdmissionRequest, Refused, Verdict
from kai_cp.json_types import Json
from kai_cp.reader.fields import number_at, object_at, text_at, texts_at
from kai_cp_models.pods import UNLIMITED

RESOURCES: Final = (("CPU", "cpu", 0), ("GPU", "gpu", 2), ("Memory", "memory", 0))
"""Name in texts, key, and digits after the point. Units: millicores, devices, megabytes."""
AMOUNTS: Final = ("quota", "limit", "overQuotaWeight")
_TOLERANCE: Final = 1e-6
"""Quotas are fractions: sums of tenths may differ in the last place."""


def review(request: AdmissionRequest) -> Verdict:
    """Raise ``Refused`` for a queue without resources and for deleting a parent.

    Quotas give warnings only, and so does deleting a queue that pod groups use.
    """
    queue = request.object
    if request.operation == "DELETE":
        _refuse_parents_end(request)
        return Verdict(allowed=True, warnings=tuple(_used(queue)))
    if object_at(queue, "spec").get("resources") is None:
        text = "spec.resources must be specified: quota, limit and overQuotaWeight of cpu, memory and gpu"
        raise Refused(text, (text,))
    _refuse_texts(queue)
    if not request.settings.quota_validation or request.queues is None:
        return Verdict(allowed=True)
    queues, found = request.queues, list[str]()
    parent = text_at(object_at(queue, "spec"), "parentQueue", "spec")
    if parent:
        found += _below(queues, queue, parent)
    if request.operation == "UPDATE":
        found += _above(queues, queue)
    return Verdict(allowed=True, warnings=tuple(found))


def children(queues: Mapping[str, Json], queue: Json) -> list[str]:
    """Names of child queues: those in the status, and known queues that name this one as parent."""
    name = _name(queue)
    listed = texts_at(object_at(queue, "status"), "childQueues", "status.childQueues")
    known = (n for n, q in queues.items() if object_at(q, "spec").get("parentQueue") == name)
    return sorted({*listed, *known} - {name})


def _refuse_parents_end(request: AdmissionRequest) -> None:
    found = children(request.queues or {}, request.object)
    if found:
        raise Refused(
            f"cannot delete queue {_name(request.object)}: it has child queues [{' '.join(found)}]: "
            "delete them, or give them another parentQueue, first"
        )


def _refuse_texts(queue: Json) -> None:
    """Raise ``Malformed`` for an amount that is not a number, as the definition of queues refuses it."""
    resources = object_at(object_at(queue, "spec"), "resources", "spec")
    for _, key, _ in RESOURCES:
        amounts = object_at(resources, key, "spec.resources")
        for field in AMOUNTS:
            number_at(amounts, field, f"spec.resources.{key}")


def _used(queue: Json) -> Iterable[str]:
    """A warning if pod groups of the queue run or wait, by the status that the queue controller keeps."""
    asked = object_at(object_at(queue, "status"), "requested", "status")
    amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(asked.items()))
    if amounts:
        yield (
            f"pod groups of queue {_name(queue)} ask for {amounts} (status.requested): what runs goes on, "
            "and what waits stays pending until spec.queue of its PodGroup names another queue"
        )


def _below(queues: Mapping[str, Json], queue: Json, parent_name: str) -> Iterable[str]:
    parent = queues.get(parent_name)
    if parent is None:
        what = "there is no such queue; create it before its children"
        if parent_name == _name(queue):
            what = "a queue is not its own parent"
        raise Refused(f"failed to get parent queue: spec.parentQueue is {parent_name}: {what}")
    if object_at(parent, "spec").get("resources") is None:
        raise Refused(f"parent queue {parent_name} has no resources defined: write its spec.resources first")
    listed = texts_at(object_at(parent, "status"), "childQueues", "status.childQueues")
    siblings = [queues[n] for n in listed if n in queues and n != _name(queue)]
    for word, key, digits in RESOURCES:
        own, limit = _quota(queue, key), _quota(parent, key)
        of_parent = f"parent queue {parent_name} {word} quota ({_shown(limit, digits)})"
        if _exceeds(own, limit):
            yield f"child queue {word} quota ({_shown(own, digits)}) exceeds {of_parent}"
        total = _total([own, *(_quota(sibling, key) for sibling in siblings)])
        if _exceeds(total, limit):
            yield f"total children {word} quota ({_shown(total, digits)}) exceeds {of_parent}"


def _above(queues: Mapping[str, Json], parent: Json) -> Iterable[str]:
    below = {n: queues[n] for n in children(queues, parent) if n in queues}
    for word, key, digits in RESOURCES:
        limit = _quota(parent, key)
        of_parent = f"parent {word} quota ({_shown(limit, digits)})"
        for name, child in below.items():
            own = _quota(child, key)
            if _exceeds(own, limit):
                yield f"child queue {name} {word} quota ({_shown(own, digits)}) exceeds {of_parent}"
        total = _total([_quota(child, key) for child in below.values()])
        if _exceeds(total, limit):
            yield f"total children {word} quota ({_shown(total, digits)}) exceeds {of_parent}"


def _name(queue: Json) -> str:
    return text_at(object_at(queue, "metadata"), "name", "metadata")


def _quota(queue: Json, key: str) -> float | None:
    """The quota of a queue; None: unlimited."""
    resources: Mapping[str, object] = object_at(object_at(queue, "spec"), "resources", "spec")
    where = f"spec.resources.{key}"
    quota = number_at(object_at(resources, key, "spec.resources"), "quota", where) or 0.0
    return None if quota == UNLIMITED else quota


def _total(quotas: Iterable[float | None]) -> float | None:
    total = 0.0
    for quota in quotas:
        if quota is None:
            return None
        total += quota
    return total


def _exceeds(quota: float | None, limit: float | None) -> bool:
    """Whether one amount exceeds another; None is unlimited, and exceeds every other amount."""
    if limit is None:
        return False
    return quota is None or quota - limit > _TOLERANCE


def _shown(quota: float | None, digits: int) -> str:
    return "unlimited" if quota is None else f"{quota:.{digits}f}"
