"""When time alone may change a decision: at starts, ends, maxima, and when delays and patience run out."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.plan import IdleSoFar, Reservation
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.snapshot import PodGroup


def next_instant(times: Times | None, reservations: tuple[Reservation, ...] | None) -> float | None:
    """The next instant after now at which a cycle over the same objects may decide differently; None:
    none."""
    if times is None:
        return None
    found = (one for one in _instants(times, reservations or ()) if times.now < one < NEVER)
    return min(found, default=None)


def _instants(times: Times, reservations: tuple[Reservation, ...]) -> Iterator[float]:
    settings = times.settings
    waiting = times.snapshot.waiting_groups
    for entry in reservations:
        if entry.idle is not None:
            yield used_up(entry.idle, settings.reservations.max_idle_gpu_hours)
        if entry.start is not None and entry.state not in ("started", "dropped", "offered"):
            yield entry.start
    for group in times.snapshot.groups:
        if not times.runs(group):
            continue
        if settings.max_runtime.enforce:
            yield times.start(group) + times.limit(group)
        if settings.reservations.enabled and waiting:
            yield times.end(group.key)
    for group in waiting:
        yield from _of_waiting(times, group)


def _of_waiting(times: Times, group: PodGroup) -> Iterator[float]:
    settings = times.settings
    yield times.now + times.requeue_delay_left(group)
    waited = times.waited(group)
    if settings.reservations.enabled:
        after = times.patience(group)
        yield times.now + max(0.0, after - waited)
    step = settings.aging.step_seconds
    if step > 0 and group.aged < settings.aging.most_points:
        yield times.now + step - waited % step


def used_up(idle: IdleSoFar, most: float) -> float:
    """When more than ``most`` GPU-hours will have stood idle; infinite while no GPU stands idle."""
    if idle.gpus <= 0:
        return NEVER
    return idle.since + max(0.0, most - idle.gpu_hours) / idle.gpus * 3600.0 + 1.0
