"""How long a waiting group can wait at most, by aging and maximum run times (section 7).

wait <= W + (k + 1) * M + termination grace. After W no group that arrives later is before it, and it holds
capacity, with at most k holders before it. Whatever runs is gone after M. The bound assumes that capacity
does not change and that the group's queue stays within its share.
"""

from __future__ import annotations

from dataclasses import dataclass

from kai_cp_models.pods import GPU, MILLI, GroupKey
from kai_cp_models.reservations.times import NEVER, Times
from kai_cp_models.snapshot import PodGroup


@dataclass(frozen=True, slots=True)
class WaitBound:
    """The longest wait since the group came, without grace [s]; where there is none, ``why`` says the
    reason."""

    seconds: float | None
    why: str = ""


def wait_bounds(times: Times) -> dict[GroupKey, WaitBound]:
    """The bounds of all waiting groups; empty where aging or reservations are off."""
    settings, snapshot = times.settings, times.snapshot
    most = settings.aging.most_points if settings.aging.step_seconds > 0 else 0
    if not settings.reservations.enabled or not most:
        return {}
    waiting = list(snapshot.waiting_groups)
    others = {group.key: group for group in (*filter(times.runs, snapshot.groups), *waiting)}
    limits = {key: times.limit(group) for key, group in others.items()}
    endless = sorted(key for key, limit in limits.items() if limit == NEVER)
    longest = max((limit for limit in limits.values() if limit < NEVER), default=0.0)
    holders = sorted(
        (stored.made, group.key) for group in waiting if (stored := times.stored(group.key)) is not None
    )
    found: dict[GroupKey, WaitBound] = {}
    for group in waiting:
        why = _missing(times, group, endless)
        if why:
            found[group.key] = WaitBound(None, why)
            continue
        rivals = [one.priority for one in others.values() if one.queue == group.queue]
        points = max(0, max(rivals, default=group.priority) - group.priority)
        if points > most:
            why = f"its queue has priorities {points} above its own, waiting is worth {most}"
            found[group.key] = WaitBound(None, why)
            continue
        until = max((points + 1) * settings.aging.step_seconds, _patience(times, group))
        ahead = settings.reservations.most - 1
        keys = [key for _, key in holders]
        if group.key in keys:
            ahead = min(ahead, keys.index(group.key))
        found[group.key] = WaitBound(until + (ahead + 1) * longest)
    return found


def _patience(times: Times, group: PodGroup) -> float:
    return 0.0 if times.notes(group.key).reserve else times.patience(group)


def _missing(times: Times, group: PodGroup, endless: list[GroupKey]) -> str:
    """Why there is no bound; "" where there is one."""
    settings = times.settings.reservations
    gpus = sum(pod.spec.requests[GPU] for pod in times.snapshot.members[group.key]) / MILLI
    if endless:
        more = f" and {len(endless) - 1} more" if len(endless) > 1 else ""
        return f"nothing limits the run time of {endless[0]}{more}"
    if gpus < settings.min_gpus:
        return f"it holds no places: {gpus:g} GPUs are fewer than {settings.min_gpus}"
    if times.opted_out(group) or _patience(times, group) == NEVER or not settings.most:
        return "it holds no places"
    return ""
