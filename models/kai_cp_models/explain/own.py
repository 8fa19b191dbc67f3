"""What a pod group itself lacks: families that are taken as given when they are relaxed."""

from __future__ import annotations

from kai_cp_models.explain.ask import classes_of
from kai_cp_models.explain.families import Families
from kai_cp_models.explain.situation import Situation
from kai_cp_models.pods import PodStatus
from kai_cp_models.snapshot import PodGroup


def own_faults(situation: Situation, group: PodGroup) -> Families:
    """The families in ``TAKEN_AS_GIVEN`` that the group breaks (4.1)."""
    snapshot = situation.snapshot
    gang = situation.gang(group.key)
    found = set()
    if group.queue not in snapshot.leaf_queues:
        found.add("queue")
    if group.backed_off:
        found.add("backoff")
    waiting = any(pod.status is PodStatus.PENDING for pod in gang.pods)
    state = gang.at_first
    if not waiting or gang.unknown_subgroup_pods or not state.ready or state.batch is None:
        found.add("readiness")
    classes = classes_of(situation.before, gang, situation.batch(group.key))
    if any(item.missing for item in classes):
        found.add("dependency")
    return frozenset(found)
