"""The planned cluster: the snapshot with the plan carried out.

Every node has three pictures. *Before*: as the snapshot has it. *Now*: the pods that are
there at this instant, releasing and evicted ones included, plus the binds. *In the end*: after every
release and eviction, plus binds and nominations. A bind must be possible now and in the end, a
nomination in the end. A pod that an earlier action placed and a later one withdrew has no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from kai_cp_models.check.snapshot_facts import HeldByQueues, SnapshotFacts
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.policy import EVICTION_ACTIONS, STATE_ACTIONS, ActionName
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Node, PodGroup, Snapshot

UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading ``Decision.details`` raises where they have another form than the API's."""


def text_of(value: object) -> str:
    """A text in the details of a decision; raises ``TypeError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, in words and in objects: ``str`` is the sentence.

    ``pods``, ``groups``: those that got a place they may not have; for an eviction the pod groups that it
    serves, not the victim. ``node``, ``queue``: the one that holds too much; None elsewhere.
    """

    rule: str
    words: str
    pods: tuple[PodKey, ...] = ()
    groups: tuple[GroupKey, ...] = ()
    node: str | None = None
    queue: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod on a node, with the GPU groups it uses there."""

    pod: Pod
    gpu_groups: tuple[str, ...]
    placed: bool = False
    """Whether this plan puts it there."""


@dataclass(frozen=True)
class PlannedCluster:
    """A snapshot and a plan.

    Every picture leaves out decisions on unknown pods or nodes, and evictions of pods that do not run.
    """

    snapshot: Snapshot
    plan: Plan
    options: OptionalRules = OptionalRules.model_validate({})
    known: SnapshotFacts | None = None
    """Results that audits of the same snapshot share."""
    lawful: Callable[[Plan], bool] | None = None
    """Whether another plan for the snapshot breaks no rule; None: this is such a plan, or a large one."""
    left_out: Collection[GroupKey] = ()
    """Pod groups that were left alone because plans with them failed: what they had a right to is free."""

    @cached_property
    def start(self) -> SnapshotFacts:
        """Facts of the snapshot alone."""
        return self.known or SnapshotFacts.of(self.snapshot)

    # --- decisions by kind ---------------------------------------------------------------------

    @cached_property
    def _by_kind(self) -> Mapping[str, dict[PodKey, Decision]]:
        """The last decision of every kind for every pod."""
        found: dict[str, dict[PodKey, Decision]] = {"Bind": {}, "Nominate": {}, "Evict": {}}
        pods, nodes = self.snapshot.pod_by_key, self.snapshot.node_index
        for d in self.plan.decisions:
            pod = pods.get(d.pod)
            if pod and d.node in nodes and (d.kind != "Evict" or pod.status in ACTIVE_ALLOCATED):
                found[d.kind][d.pod] = d
        return found

    @cached_property
    def binds(self) -> dict[PodKey, Decision]:
        """Bound pods."""
        return self._by_kind["Bind"]

    @cached_property
    def nominations(self) -> dict[PodKey, Decision]:
        """Nominated pods, moved ones included."""
        return self._by_kind["Nominate"]

    @cached_property
    def evictions(self) -> dict[PodKey, Decision]:
        """Evicted pods, moved ones included."""
        return self._by_kind["Evict"]

    @cached_property
    def placed(self) -> dict[PodKey, Decision]:
        """The new place of every pod that gets one."""
        return self.nominations | self.binds

    @cached_property
    def arrivals(self) -> Sequence[tuple[Pod, Decision]]:
        """Every pod that gets a place, with its decision; most decisions of a plan are of this kind."""
        return list(zip(map(self.pod, self.placed), self.placed.values(), strict=True))

    @cached_property
    def placed_specs(self) -> frozenset[PodSpec]:
        """What the pods that get a place ask for: there are many pods and few specs."""
        return frozenset(pod.spec for pod, _ in self.arrivals)

    @cached_property
    def moved(self) -> frozenset[PodKey]:
        """Pods that are evicted and get a new place."""
        return frozenset(self.evictions.keys() & self.placed.keys())

    @cached_property
    def lost(self) -> frozenset[PodKey]:
        """Pods that are evicted for good."""
        return frozenset(self.evictions.keys() - self.placed.keys())

    @cached_property
    def added(self) -> frozenset[PodKey]:
        """Pods that had no place and get one."""
        return frozenset(self.placed.keys() - self.evictions.keys())

    @cached_property
    def added_held(self) -> Mapping[tuple[str, ActionName], HeldByQueues]:
        """What queues hold through ``added``, by kind and action of the decisions."""
        added, found = self.added, dict[tuple[str, ActionName], list[tuple[Pod, str]]]()
        for pod, decision in self.arrivals:
            if pod.key in added:
                found.setdefault((decision.kind, decision.action), []).append((pod, decision.node))
        return {of: self.start.held_by(places) for of, places in found.items()}

    def plan_without(
        self,
        groups: Collection[GroupKey],
        staying: Collection[PodKey] = (),
        *,
        serving: Collection[PodKey] = (),
    ) -> Plan:
        """The plan in which some groups get and hold no places, except for the pods ``serving``. Evictions
        for these groups alone are gone, and the pods ``staying`` keep running."""
        gone, kept, found = set(groups), set(staying), list[Decision]()
        for decision in self.plan.decisions:
            left = tuple(key for key in decision.triggers if key not in gone)
            if decision.kind == "Evict" and len(left) < len(decision.triggers):
                kept |= set() if left else {decision.pod}
                decision = replace(decision, triggers=left)
            found.append(decision)
        served = {key for key in self.added if self.pod(key).group in gone} - set(serving)
        decisions = tuple(one for one in found if one.pod not in kept and one.pod not in served)
        starts = self.plan.reservations
        if starts is not None:
            none: dict[str, Any] = {"state": "dropped", "cause": "LeftOut", "nodes": {}, "expired": None}
            none |= {"beside": (), "victims": ()}
            starts = tuple(replace(entry, **none) if entry.group in gone else entry for entry in starts)
        return replace(self.plan, decisions=decisions, reservations=starts, localities={})

    # --- actions -------------------------------------------------------------------------------

    @cached_property
    def turns(self) -> Mapping[ActionName, int]:
        """The turn of every action. Maximum run times end first, starts in the future begin allocate."""
        order: list[ActionName] = ["maxruntime"]
        for action in self.snapshot.policy.actions:
            order += ["reservation", action] if action == "allocate" else [action]
        order.append("defrag")
        return {action: order.index(action) for action in order}

    def earlier(self, left: ActionName, right: ActionName) -> bool:
        """Whether an action has its turn before another; one that the policy does not name has none."""
        turns = self.turns
        return left in turns and right in turns and turns[left] < turns[right]

    @cached_property
    def evicted_later(self) -> frozenset[PodKey]:
        """Pods that actions after allocate evict: they were still there when allocate gave places. None if an
        evicting action comes before allocate, because a pod that was moved away may be home again."""
        if any(self.earlier(action, "allocate") for action in EVICTION_ACTIONS):
            return frozenset()
        later = ((key, d.action) for key, d in self.evictions.items() if self.earlier("allocate", d.action))
        return frozenset(key for key, action in later if action not in STATE_ACTIONS)

    def served(self, evicted: Iterable[PodKey]) -> tuple[GroupKey, ...]:
        """The pod groups that evictions serve; the group of the pod itself if an eviction serves none."""
        decisions = [self.evictions[key] for key in evicted]
        own = ((d.group,) if d.group is not None else () for d in decisions)
        return tuple(
            dict.fromkeys(key for d, mine in zip(decisions, own, strict=True) for key in d.triggers or mine)
        )

    # --- pods ----------------------------------------------------------------------------------

    @cached_property
    def pod(self) -> Callable[[PodKey], Pod]:
        """A pod by key."""
        return self.snapshot.pod_by_key.__getitem__

    def node(self, name: str) -> Node:
        """A node by name."""
        return self.start.node(name)

    @cached_property
    def group_of(self) -> Callable[[Pod], PodGroup | None]:
        """The pod group of a pod."""
        return self.start.group_of

    @cached_property
    def touched_groups(self) -> tuple[PodGroup, ...]:
        """Pod groups that the plan changes."""
        keys = self._placed_by_group.keys() | self._evicted_by_group.keys()
        known = self.snapshot.group_by_key
        places = sorted(self.snapshot.columns.position[key] for key in keys if key in known)
        return tuple(self.snapshot.groups[at] for at in places)

    @cached_property
    def disturbed_groups(self) -> tuple[PodGroup, ...]:
        """Pod groups of which the plan evicts pods."""
        return tuple(group for group in self.touched_groups if group.key in self._evicted_by_group)

    @cached_property
    def _placed_by_group(self) -> Mapping[GroupKey | None, Sequence[Pod]]:
        return _by_group(pod for pod, _ in self.arrivals)

    @cached_property
    def _evicted_by_group(self) -> Mapping[GroupKey | None, Sequence[Pod]]:
        return _by_group(map(self.pod, self.evictions))

    def placed_of(self, group: PodGroup) -> Sequence[Pod]:
        """Pods of a group that get a place."""
        return self._placed_by_group.get(group.key, ())

    def evicted_of(self, group: PodGroup) -> Sequence[Pod]:
        """Pods of a group that are evicted, moved ones included."""
        return self._evicted_by_group.get(group.key, ())

    def active_before(self, group: GroupKey) -> Iterator[Pod]:
        """Pods of a group that count toward its minimum before the plan."""
        return (pod for pod in self.snapshot.members[group] if pod.status in ACTIVE_ALLOCATED)

    def active_after(self, group: GroupKey) -> Iterator[Pod]:
        """Pods of a group that count toward its minimum after the plan."""
        for pod in self.snapshot.members[group]:
            stays = pod.status in ACTIVE_ALLOCATED and pod.key not in self.evictions
            if stays or pod.key in self.placed:
                yield pod

    def node_after(self, pod: Pod) -> str | None:
        """Where an active pod is in the end."""
        decision = self.placed.get(pod.key)
        if decision is not None:
            return decision.node
        return None if pod.key in self.evictions else pod.node

    def places(self, *, now: bool) -> dict[PodKey, str]:
        """The node of every pod that holds a place: now, with the binds, or in the end."""
        there = {p.key: p.node for p in self.snapshot.pods if p.node and p.status in ACTIVE_ALLOCATED}
        if now:
            return there | {key: decision.node for key, decision in self.binds.items()}
        staying = {key: node for key, node in there.items() if key not in self.evictions}
        return staying | {key: decision.node for key, decision in self.placed.items()}

    @cached_property
    def takers(self) -> dict[tuple[GroupKey, ActionName, tuple[GroupKey, ...]], Sequence[PodGroup]]:
        """What ``victims.takers`` has found."""
        return {}

    # --- nodes ---------------------------------------------------------------------------------

    @cached_property
    def _before(self) -> dict[str, tuple[Resident, ...]]:
        return {}

    @cached_property
    def _arrivals(self) -> dict[str, tuple[Resident, ...]]:
        return {}

    @cached_property
    def _placed_on(self) -> Mapping[str, Sequence[PodKey]]:
        found: dict[str, list[PodKey]] = {}
        for key, decision in self.placed.items():
            found.setdefault(decision.node, []).append(key)
        return found

    def before(self, node: str) -> tuple[Resident, ...]:
        """Pods that hold a place on a node in the snapshot."""
        found = self._before.get(node)
        if found is None:
            pods = self.start.residents.get(node, ())
            found = self._before[node] = tuple(Resident(pod, pod.gpu_groups) for pod in pods)
        return found

    def staying(self, node: str) -> tuple[Resident, ...]:
        """Pods of ``before`` that neither release nor are evicted."""
        return tuple(
            r
            for r in self.before(node)
            if r.pod.status is not PodStatus.RELEASING and r.pod.key not in self.evictions
        )

    def arriving(self, node: str) -> tuple[Resident, ...]:
        """Pods that the plan puts on a node."""
        found = self._arrivals.get(node)
        if found is None:
            placed = ((self.pod(key), self.placed[key]) for key in self._placed_on.get(node, ()))
            residents = (Resident(pod, decision.gpu_groups, placed=True) for pod, decision in placed)
            found = self._arrivals[node] = tuple(residents)
        return found

    def now(self, node: str) -> tuple[Resident, ...]:
        """All pods there at this instant, and the binds."""
        return self.before(node) + tuple(r for r in self.arriving(node) if r.pod.key in self.binds)

    def end(self, node: str) -> tuple[Resident, ...]:
        """All pods there after all releases, evictions, binds and nominations."""
        return self.staying(node) + self.arriving(node)

    @cached_property
    def bound_nodes(self) -> tuple[str, ...]:
        """Nodes that get a pod now, by name."""
        return tuple(sorted({d.node for d in self.binds.values()}))

    @cached_property
    def target_nodes(self) -> tuple[str, ...]:
        """Nodes that get a pod now or later, by name."""
        return tuple(sorted({d.node for d in self.placed.values()}))

    def occupants(self, nodes: Iterable[str], *, now: bool) -> Iterator[tuple[str, Resident]]:
        """(node, pod) of every pod on ``nodes``, now or in the end."""
        for name in nodes:
            for resident in self.now(name) if now else self.end(name):
                yield name, resident


def _by_group(pods: Iterable[Pod]) -> Mapping[GroupKey | None, Sequence[Pod]]:
    found: dict[GroupKey | None, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.group, []).append(pod)
    return found
