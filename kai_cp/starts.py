"""Reservations and start estimates in ``decisions/1``, and back."""

from __future__ import annotations

from typing import Any, Final, get_args

from kai_cp.instants import from_rfc3339, rfc3339
from kai_cp_models.plan import Estimate, HoldState, IdleSoFar, Reservation, RolloutHolding
from kai_cp_models.pods import GroupKey

_STATES: Final[dict[str, HoldState]] = {state: state for state in get_args(HoldState)}


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """When a pod group that waits might start."""
    return {
        "kind": estimate.kind,
        "start": _instant(estimate.start),
        "unknownEnds": estimate.unknown_ends,
    }


def rollout_document(entry: RolloutHolding) -> dict[str, Any]:
    """One entry of ``rollouts``."""
    return {
        "namespace": entry.namespace,
        "workload": entry.workload,
        "queue": entry.queue,
        "revision": entry.revision,
        "until": _instant(entry.until),
        "oldGpus": _whole(entry.old_gpus),
        "newGpus": _whole(entry.new_gpus),
        "lentGpus": _whole(entry.lent_gpus),
    }


def reservation_document(entry: Reservation) -> dict[str, Any]:
    """One entry of ``reservations``."""
    document: dict[str, Any] = {
        "podGroup": str(entry.group),
        "queue": entry.queue,
        "state": entry.state,
        "start": _instant(entry.start),
        "promised": _instant(entry.promised),
        "made": _instant(entry.made),
        "nodes": {
            name: int(gpus) if gpus == int(gpus) else gpus for name, gpus in sorted(entry.nodes.items())
        },
        "domain": None if entry.domain is None else {"level": entry.domain[0], "name": entry.domain[1]},
        "waitsFor": [str(group) for group in entry.waits_for],
        "drained": list(entry.drained),
        "idleGpuHours": round(entry.idle_gpu_hours, 3),
        "lostGpuHours": round(entry.lost_gpu_hours, 3),
        "victims": [str(group) for group in entry.victims],
        "cause": entry.cause,
        "message": entry.message,
    }
    if entry.expired is not None:
        document["expired"] = _instant(entry.expired)
    if entry.idle is not None:
        document["idle"] = {
            "since": _instant(entry.idle.since),
            "gpus": _whole(entry.idle.gpus),
            "gpuHours": round(entry.idle.gpu_hours, 3),
        }
    if entry.offers:
        document["offers"] = [
            {
                "start": _instant(offer.start),
                "lostGpuHours": round(offer.lost_gpu_hours, 3),
                "idleGpuHours": round(offer.idle_gpu_hours, 3),
                "victims": [str(group) for group in offer.victims],
            }
            for offer in entry.offers
        ]
    return document


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


def _whole(amount: float) -> float | int:
    return int(amount) if amount == int(amount) else amount


def read_reservation(entry: Any, where: str) -> Reservation:
    """The entry of a document; ValueError names the field that cannot be read."""

    def instant(key: str) -> float | None:
        return instant_of(entry.get(key), key)

    def instant_of(text: Any, key: str) -> float | None:
        if text is None:
            return None
        try:
            return from_rfc3339(text)
        except (TypeError, ValueError):
            raise ValueError(f"{where}.{key} is not an RFC 3339 time") from None

    def amount(key: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{where}.{key} is not a number")
        return value

    def group(text: Any, key: str) -> GroupKey:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{where}.{key} is missing or not a text")
        return GroupKey(*text.split("/", 1)) if "/" in text else GroupKey("default", text)

    state = _STATES.get(str(entry.get("state")))
    if state is None:
        raise ValueError(f"{where}.state is {entry.get('state')!r}, expected one of {', '.join(_STATES)}")
    idle = entry.get("idle")
    if idle is not None and not isinstance(idle, dict):
        raise ValueError(f"{where}.idle is not an object")
    nodes, victims = entry.get("nodes") or {}, entry.get("victims") or []
    if not isinstance(nodes, dict):
        raise ValueError(f"{where}.nodes is not an object")
    if not isinstance(victims, list):
        raise ValueError(f"{where}.victims is not a list")
    return Reservation(
        group=group(entry.get("podGroup"), "podGroup"),
        queue=str(entry.get("queue") or ""),
        state=state,
        start=instant("start"),
        promised=instant("promised"),
        made=instant("made"),
        nodes={name: amount(f"nodes.{name}", value) for name, value in nodes.items()},
        idle_gpu_hours=amount("idleGpuHours", entry.get("idleGpuHours") or 0),
        lost_gpu_hours=amount("lostGpuHours", entry.get("lostGpuHours") or 0),
        victims=tuple(group(text, "victims") for text in victims),
        cause=entry.get("cause"),
        message=str(entry.get("message") or ""),
        expired=instant("expired"),
        idle=None
        if idle is None
        else IdleSoFar(
            instant_of(idle.get("since"), "idle.since") or 0.0,
            amount("idle.gpus", idle.get("gpus") or 0),
            amount("idle.gpuHours", idle.get("gpuHours") or 0),
        ),
    )
