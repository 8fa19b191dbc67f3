"""The snapshot that the settings ask for: aged priorities, and pods told apart by how they count in held
capacity."""

from __future__ import annotations

from dataclasses import replace

from kai_cp_models.marking import marked
from kai_cp_models.pods import ACTIVE_USED, GroupKey, Pod, PodStatus
from kai_cp_models.reservations.state import window_of
from kai_cp_models.reservations.times import TIMES, Times
from kai_cp_models.rules.stateful.gpu_kinds import told_apart
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot


def prepare(snapshot: Snapshot, settings: Settings) -> tuple[Snapshot, Times | None]:
    """The snapshot as the cycle sees it, and its run times; the snapshot unchanged where the time axis is
    off."""
    if settings.rules.gpu_kinds:
        snapshot = told_apart(snapshot)
    aging = settings.aging.step_seconds > 0 and settings.aging.most_points > 0
    planning = settings.reservations.enabled
    if not (aging or planning or settings.max_runtime.enforce):
        return snapshot, None
    if aging:
        snapshot = replace(snapshot, groups=tuple(_aged(snapshot, settings, g) for g in snapshot.groups))
    times = Times(snapshot, settings)
    if planning:
        snapshot = replace(snapshot, pods=_windowed(times))
    return replace(snapshot, extras=snapshot.extras.having(TIMES, times)), times


def points(settings: Settings, seconds: float) -> int:
    """Priority points for waiting this long (7)."""
    aging = settings.aging
    if aging.step_seconds <= 0 or seconds < 0:
        return 0
    return min(aging.most_points, int(seconds // aging.step_seconds))


def _aged(snapshot: Snapshot, settings: Settings, group: PodGroup) -> PodGroup:
    """The group with the points that it has while it waits, and the points with which it started or starts
    now."""
    pods = snapshot.members[group.key]
    evicted = group.created if group.last_eviction is None else max(group.created, group.last_eviction)
    if any(pod.status in ACTIVE_USED for pod in pods):
        if group.last_start is None or group.last_start > snapshot.now:
            return group
        since = evicted if evicted <= group.last_start else group.created
        return replace(group, aged_at_start=points(settings, group.last_start - since))
    found = points(settings, snapshot.now - evicted)
    return replace(group, aged=found, aged_at_start=found)


def _windowed(times: Times) -> tuple[Pod, ...]:
    """Pods whose specs tell windows apart, so that counts of pods by spec never mix them."""
    snapshot = times.snapshot
    asking = [
        group
        for group in snapshot.waiting_groups
        if times.notes(group.key).stored is not None or times.asks_for_reservation(group)
    ]
    marks: dict[GroupKey, str] = {}
    for group in snapshot.groups:
        window = window_of(times, group, asking)
        ignored = ",".join(sorted(map(str, window.ignores)))
        own = str(group.key) if group in asking else ""
        marks[group.key] = f"until {window.until} {window.gives_way} {window.drained} {ignored} {own}"

    def mark_of(pod: Pod) -> str | None:
        owner = snapshot.group_by_key.get(pod.group) if pod.group is not None else None
        if owner is None or not (pod.status is PodStatus.PENDING or owner.preemptible):
            return None
        return marks[owner.key]

    return marked(snapshot.pods, mark_of)
