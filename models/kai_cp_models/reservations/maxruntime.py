"""Maximum run times: a group that has used its time is evicted whole, before any group is served (12.1)."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.cycle import Cycle
from kai_cp_models.pods import GroupKey
from kai_cp_models.reservations.times import Times
from kai_cp_models.shown import span


def end_overdue(cycle: Cycle, times: Times) -> None:
    """Evict every group whose enforced maximum has passed, preemptible or not."""
    cycle.end_groups("maxruntime", overdue_groups(cycle, times))


def overdue_groups(cycle: Cycle, times: Times) -> Iterator[tuple[GroupKey, str]]:
    """The running groups whose enforced maximum has passed, each with the sentence that says so."""
    for group in cycle.snapshot.groups:
        if times.runs(group) and times.overdue(group):
            ran = span(times.now - times.began(group))
            yield group.key, f"{group.key} has run for {ran}, which is its maximum"
