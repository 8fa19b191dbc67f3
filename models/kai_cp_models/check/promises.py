"""Promised places: only groups that come before the promised one may take them (4.2).

A group is promised its places when an earlier cycle nominated its whole next batch, and the nodes still take
its pods. It comes before all others in allocate. So no plan may leave it without places while allocate gives
its places to others, if the same plan with the group in its places and without those others would break no
rule. A later action may take its places for groups with a right to them. If such an action uses those nodes,
or fills another node on which a pod of the group would have fitted, nothing is judged.

Not judged either: groups with several pod sets; pods that share GPUs, use claims, or need other pods beside
them, because more than a node makes up their places; groups that limits, quotas, or promised starts in their
queues kept waiting before anything was evicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kai_cp_models.check import amounts, tree
from kai_cp_models.check.capacity import fits
from kai_cp_models.check.planned_cluster import PlannedCluster, Resident, Violation
from kai_cp_models.check.queues import sums
from kai_cp_models.check.starts import HOLDING
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import MILLI, UNLIMITED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import EVICTION_ACTIONS, STATE_ACTIONS
from kai_cp_models.snapshot import PodGroup

_SCALE = (1, 1, MILLI)


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Pod groups whose promised places went to others."""
    if (
        world.lawful is None
        or "allocate" not in world.turns
        or not world.snapshot.policy.plugin("nominatednode")
        or any(world.earlier(action, "allocate") for action in EVICTION_ACTIONS)
    ):
        return
    for group in world.start.nominated_groups:
        batch = () if group.key in world.left_out else _promised(world, group)
        others = _instead(world, group, batch)
        if (
            others
            and not _starts(world, group)
            and _within_bounds(world, group, batch)
            and world.lawful(_kept(world, batch, others))
        ):
            names = ", ".join(map(str, others))
            words = (
                f"pod group {group.key} is promised places on {batch[0].nominated_node}, {names} gets them"
            )
            yield Violation("promises", words, groups=others)


def _promised(world: PlannedCluster, group: PodGroup) -> Sequence[Pod]:
    """The next batch of a group whose places are promised and that gets none; empty for other groups."""
    members, leaves = world.snapshot.members[group.key], list(group.root.leaves())
    if len(leaves) != 1 or any(pod.key in world.placed for pod in members):
        return ()
    running = len(list(world.active_before(group.key)))
    waiting = [pod for pod in members if pod.status is PodStatus.PENDING]
    batch = waiting[: max(1, leaves[0].minimum - running)]
    known = all(pod.nominated_node in world.snapshot.node_index and _plain(pod) for pod in batch)
    return batch if known and running + len(batch) >= leaves[0].minimum else ()


def _plain(pod: Pod) -> bool:
    spec = pod.spec
    beside = spec.pod_affinity or spec.spread
    return pod.ours and not (spec.gpu.shares or spec.claims or spec.volume_claims or beside)


def _instead(world: PlannedCluster, group: PodGroup, batch: Sequence[Pod]) -> tuple[GroupKey, ...]:
    """Pod groups that get places promised to the batch, and do not come before it."""
    found: dict[GroupKey, None] = {}
    if batch and _taken_back(world, batch):
        return ()
    for name in dict.fromkeys(pod.nominated_node or "" for pod in batch):
        for resident in world.arriving(name):
            pod, owner = resident.pod, world.group_of(resident.pod)
            action = world.placed[pod.key].action
            if action not in ("allocate", "reservation"):
                return ()
            own = action == "reservation" or pod.nominated_node is not None
            if owner is not None and pod.key in world.added and not own:
                found[owner.key] = None
    if not found:
        return ()
    above = (
        one for one in world.touched_groups if one.queue == group.queue and one.priority > group.priority
    )
    if any(world.placed[p.key].action != "allocate" for one in above for p in world.placed_of(one)):
        # What an action took for these groups may have cost the batch its places, and others got what was
        # left.
        return ()
    return tuple(found)


def _taken_back(world: PlannedCluster, batch: Sequence[Pod]) -> bool:
    """Whether a later action fills a node that a pod of the batch might have used instead."""
    given = {d.node for d in world.placed.values() if world.earlier("allocate", d.action)}
    return not all(fits(world, name, (*world.end(name), Resident(batch[0], ()))) for name in given)


def _starts(world: PlannedCluster, group: PodGroup) -> bool:
    """Whether queues of the group have promised starts: their shares are then not judged (12.2)."""
    path, paths = set(world.snapshot.queue_path.get(group.queue, ())), world.snapshot.queue_path
    holding = (entry for entry in world.plan.reservations or () if entry.state in HOLDING)
    return any(not path.isdisjoint(paths.get(entry.queue, ())) for entry in holding)


def _within_bounds(world: PlannedCluster, group: PodGroup, batch: Sequence[Pod]) -> bool:
    """Whether the batch is within limits and quotas beside all that is there; evictions come later."""
    asked = (0, 0, 0)
    for pod in batch:
        asked = amounts.plus(asked, world.start.charge(pod, pod.nominated_node or ""))
    total, firm = sums(world, world.start.held, *world.start.terminating)
    for name in world.snapshot.queue_path.get(group.queue, ()):
        queue = world.snapshot.queue_by_name[name]
        for held, bounds in (
            (total, queue.limit),
            *(() if group.preemptible else ((firm, queue.firm_quota),)),
        ):
            for more, before, bound, scale in zip(asked, held[name], bounds, _SCALE, strict=True):
                if more and bound != UNLIMITED and before + more > bound * scale:
                    return False
    return True


def _kept(world: PlannedCluster, batch: Sequence[Pod], others: tuple[GroupKey, ...]) -> Plan:
    """The plan with the batch in its places. The other groups lose their places, except those that were
    promised to them, and the evictions for them are gone."""
    theirs = set[PodKey]()
    for group in map(world.snapshot.group_by_key.__getitem__, others):
        home = [p for p in world.placed_of(group) if world.placed[p.key].node == p.nominated_node]
        if tree.satisfied(group.root, tree.counts((*world.active_before(group.key), *home))):
            theirs.update(pod.key for pod in home)
    places = [Decision("Nominate", p.key, p.group, p.nominated_node or "", "allocate") for p in batch]
    left = world.plan_without(others, serving=theirs)
    mine = world.turns["allocate"]
    later = (d.action not in STATE_ACTIONS and world.turns.get(d.action, mine) > mine for d in left.decisions)
    at = next((i for i, after in enumerate(later) if after), len(left.decisions))
    return replace(left, decisions=(*left.decisions[:at], *places, *left.decisions[at:]))
