"""Short builders of worlds with a time axis: minutes from now, and run times as annotations write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kai_cp_models.plan import Plan, Reservation
from kai_cp_models.pods import Pod
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup
from tests.support.worlds import NOW, group, pods, spec

MINUTE = 60.0


def at(minutes: float) -> float:
    """The instant this many minutes from now."""
    return NOW + minutes * MINUTE


def written(minutes: float) -> str:
    """The same instant in the format of annotations."""
    return datetime.fromtimestamp(at(minutes), UTC).isoformat().replace("+00:00", "Z")


def settings(**more: Any) -> Settings:
    """Reservations on; ``time={...}`` and the like for other groups of settings."""
    values: dict[str, Any] = {
        "solver": {"budget_seconds": 20},
        **more,
        "reservations": {"enabled": True, "min_gpus": 1, **more.get("reservations", {})},
    }
    return Settings.model_validate(values)


def runs(
    name: str, node: str, gpus: int = 8, lasts: str | None = None, since: float = 0, **more: Any
) -> tuple[PodGroup, tuple[Pod, ...]]:
    """A group of one pod that has run for that many minutes."""
    notes = () if lasts is None else (("kai-cp/expected-runtime", lasts),)
    needs = spec(gpus, **more.pop("needs", {}))
    values = {"preemptible": False, "priority": 100, **more}
    one = group(name, 1, last_start=at(-since), notes=notes, **values)
    return one, pods(name, 1, node, spec=needs, started=at(-since))


def waits(
    name: str,
    count: int = 1,
    gpus: int = 8,
    lasts: str | None = None,
    reserve: bool = False,
    waited: float = 0,
    stored: str | None = None,
    **more: Any,
) -> tuple[PodGroup, tuple[Pod, ...]]:
    """A gang that has waited for that many minutes."""
    notes = [*more.pop("notes", ())]
    if lasts is not None:
        notes.append(("kai-cp/expected-runtime", lasts))
    if reserve:
        notes.append(("kai-cp/reserve", "true"))
    if stored is not None:
        notes.append(("kai-cp/reservation", stored))
    needs = spec(gpus, **more.pop("needs", {}))
    one = group(name, count, created=at(-waited), notes=tuple(sorted(notes)), **more)
    return one, pods(name, count, spec=needs)


def stored(
    start: float,
    nodes: dict[str, int],
    made: float = -30,
    promised: float | None = None,
    beside: Sequence[str] = (),
) -> str:
    """A reservation in the format of its annotation."""
    return json.dumps(
        {
            "schema": "reservation/1",
            "start": written(start),
            "promised": written(start if promised is None else promised),
            "made": written(made),
            "nodes": nodes,
            "beside": [["ns", name] for name in beside],
        }
    )


def holds(plan: Plan) -> dict[str, tuple[str, float, list[str]]]:
    """State, start in minutes from now and nodes of every reservation."""
    return {
        entry.group.name: (
            entry.state,
            round(((entry.start or NOW) - NOW) / MINUTE, 3),
            sorted(entry.nodes),
        )
        for entry in plan.reservations or ()
    }


def entry(plan: Plan, name: str) -> Reservation:
    """The reservation of a group."""
    return next(one for one in plan.reservations or () if one.group.name == name)


def world(*members: tuple[PodGroup, tuple[Pod, ...]]) -> dict[str, Any]:
    """Groups and pods as ``cluster`` takes them."""
    return {"groups": [one for one, _ in members], "pods": [pod for _, many in members for pod in many]}
