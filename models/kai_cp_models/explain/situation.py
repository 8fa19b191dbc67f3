"""The situation that is explained: a snapshot, the plan of its cycle, and the capacity that the plan
leaves."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.joint.problem import ask_of
from kai_cp_models.joint.victim_candidates import charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Decision, Plan, Unscheduled
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import PodGroup, Snapshot
from kai_cp_models.units import Batch, Gang


@dataclass(frozen=True, slots=True)
class HeldUnit:
    """An eviction unit (5.4) that holds capacity when the plan is carried out, whichever group asks for it.

    ``placed``: its pods that the plan gave their places. ``movable``: no rule for gangs keeps it from moving,
    and the plan has not moved it. ``holds``: what its queue is charged.
    """

    group: PodGroup
    pods: tuple[Pod, ...]
    chain: int
    whole: bool
    placed: int
    movable: bool
    holds: Amounts


@dataclass(frozen=True)
class Situation:
    """One cycle as it was decided. Every result is computed once and kept."""

    snapshot: Snapshot
    settings: Settings
    plan: Plan

    @cached_property
    def evicted(self) -> Mapping[PodKey, Decision]:
        """Evictions by pod."""
        return {one.pod: one for one in self.plan.decisions if one.kind == "Evict"}

    @cached_property
    def given(self) -> Mapping[PodKey, Decision]:
        """Places by pod."""
        return {one.pod: one for one in self.plan.decisions if one.kind != "Evict"}

    @cached_property
    def reasons(self) -> Mapping[GroupKey, Unscheduled]:
        """What the cycle reports about groups that wait."""
        return {entry.group: entry for entry in self.plan.unscheduled}

    @cached_property
    def before(self) -> Ledger:
        """The state before the cycle."""
        settings = self.settings
        return Ledger.of(self.snapshot, settings.rules, close_gangs=settings.objective.close_gangs)

    @cached_property
    def emptied(self) -> Ledger:
        """The state when the plan's evictions are carried out and none of its places is taken."""
        ledger = self.before.copy()
        for key in self.evicted:
            ledger.evict(self.snapshot.pod_by_key[key])
        return ledger

    @cached_property
    def after(self) -> Ledger:
        """The state when the plan is carried out."""
        ledger = self.emptied.copy()
        for key, place in self.given.items():
            ledger.place(
                self.snapshot.pod_by_key[key],
                self.snapshot.node_index[place.node],
                place.gpu_groups,
                pipelined=place.kind == "Nominate",
            )
        return ledger

    @cached_property
    def units(self) -> tuple[HeldUnit, ...]:
        """The units that hold capacity, by pod group and in the order in which they leave."""
        return tuple(unit for group in self.snapshot.groups for unit in self._units_of(group))

    def _units_of(self, group: PodGroup) -> Iterator[HeldUnit]:
        ledger = self.after
        gang = ledger.fixed.gangs[group.key]
        if not any(ledger.status(pod) in ACTIVE_ALLOCATED for pod in gang.pods):
            return
        untouched = group.key not in ledger.touched
        units = gang.units_at_first if untouched else gang.units(ledger.status)
        movable = ledger.state(gang).satisfied
        for chain, unit in enumerate(units):
            placed = sum(pod.status is PodStatus.PENDING for pod in unit.pods)
            moved = any(pod.key in self.evicted for pod in unit.pods)
            holds = charged(ledger, unit.pods)
            yield HeldUnit(group, unit.pods, chain, unit.whole, placed, movable and not moved, holds)

    def gang(self, key: GroupKey) -> Gang:
        """The gang of a pod group."""
        return self.before.fixed.gangs[key]

    def batch(self, key: GroupKey) -> Batch | None:
        """The next batch (5.3); if the gang is not ready, the pods that exist."""
        gang = self.gang(key)
        return gang.at_first.batch or gang.state(_ungated).batch

    def kind_of(self, gang: Gang, batch: Batch) -> object:
        """A key that is equal for batches that are interchangeable where only free capacity matters."""
        return ask_of(self.after, gang, batch).kind.signature

    def state(self, key: GroupKey) -> str:
        """``running``, ``admitted``, ``moved``, ``evicted`` or ``pending``."""
        gang = self.gang(key)
        members = self.snapshot.members[key]
        lost = [pod for pod in members if pod.key in self.evicted]
        if lost:
            return "moved" if all(pod.key in self.given for pod in lost) else "evicted"
        if not any(pod.status in (PodStatus.PENDING, PodStatus.GATED) for pod in members):
            return "running"
        return "admitted" if admitted(gang, self.given.keys(), self.evicted.keys()) else "pending"

    def served_before(self, key: GroupKey) -> frozenset[GroupKey]:
        """Pod groups that got a place in this cycle before ``key`` was refused.

        Allocate serves groups by the order of their turns. Evicting actions serve all they can in the fair
        order, so their places count as given before.
        """
        turns = self.plan.turns
        last = max((i for i, turn in enumerate(turns) if turn == key), default=len(turns))
        first: dict[GroupKey, int] = {}
        for i, turn in enumerate(turns):
            first.setdefault(turn, i)
        found: set[GroupKey] = set()
        for place in self.given.values():
            if place.group is None or place.group == key:
                continue
            if place.action != "allocate" or first.get(place.group, -1) < last:
                found.add(place.group)
        return frozenset(found)


def admitted(gang: Gang, given: Container[PodKey], evicted: Container[PodKey]) -> bool:
    """Whether a gang gets its next batch, or runs in full, when these pods are placed and evicted."""

    def after(pod: Pod) -> PodStatus:
        if pod.key in given:
            return PodStatus.ALLOCATED
        return PodStatus.RELEASING if pod.key in evicted else pod.status

    if not gang.state(after).satisfied:
        return False
    members = (*gang.pods, *gang.unknown_subgroup_pods)
    if not any(after(pod) in (PodStatus.PENDING, PodStatus.GATED) for pod in members):
        return True
    standing = sum(after(pod) in ACTIVE_ALLOCATED for pod in members)
    stood = sum(pod.status in ACTIVE_ALLOCATED for pod in members)
    return standing > stood or not gang.at_first.satisfied


def _ungated(pod: Pod) -> PodStatus:
    return PodStatus.PENDING if pod.status is PodStatus.GATED else pod.status
