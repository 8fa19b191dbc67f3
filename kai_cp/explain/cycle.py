"""Cycles on changed snapshots: the decision, the state that it leads to, and the difference of two such
states."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Final

from kai_cp.explain.draft import Draft
from kai_cp.explain.places import carry_out
from kai_cp.json_types import Object
from kai_cp.reader.snapshot import ParseMemo, parse
from kai_cp_models.engine import decide
from kai_cp_models.pods import ACTIVE_ALLOCATED, GroupKey, Pod, PodKey
from kai_cp_models.queries.cluster import load_solver
from kai_cp_models.queries.shares import whole_gpus
from kai_cp_models.queries.why import Situation, Work, admitted
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

LEAST_SECONDS: Final = 1.0
"""A cycle that began before the deadline gets at least this long."""
READ_WORK: Final = 0.05
"""Work of a cycle beside what its plan counts: changing, reading and deciding the smallest snapshot."""


@dataclass(frozen=True)
class DecidedCycle:
    """A snapshot with the plan of its cycle."""

    draft: Draft
    situation: Situation
    seconds: float

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that was decided."""
        return self.situation.snapshot

    def admits(self, key: GroupKey) -> bool:
        """Whether a pod group gets its next batch, or runs in full."""
        if key not in self.snapshot.group_by_key:
            return False
        situation = self.situation
        return admitted(situation.gang(key), situation.given.keys(), situation.evicted.keys())

    def binds(self, key: GroupKey) -> bool:
        """Whether everything that the group gets in this cycle is free now."""
        mine = [one for one in self.situation.given.values() if one.group == key]
        return bool(mine) and all(one.kind == "Bind" for one in mine)

    def disturbs_for(self, key: GroupKey) -> bool:
        """Whether a pod is evicted or moved for the group."""
        return any(key in one.triggers for one in self.situation.evicted.values())

    @cached_property
    def outcome(self) -> PlacedGroups:
        """What holds which places when the plan is carried out."""
        situation = self.situation
        held: Counter[GroupKey] = Counter()
        holders: list[Pod] = []
        for pod in self.snapshot.pods:
            if pod.group is None:
                continue
            stays = pod.status in ACTIVE_ALLOCATED and pod.key not in situation.evicted
            if stays or pod.key in situation.given:
                held[pod.group] += 1
                holders.append(pod)
        return PlacedGroups(
            frozenset(self.snapshot.group_by_key),
            held,
            round(whole_gpus(holders), 3),
            frozenset(situation.evicted.keys() - situation.given.keys()),
            frozenset(situation.evicted.keys() & situation.given.keys()),
        )


@dataclass(frozen=True)
class PlacedGroups:
    """Groups that hold a place after a cycle. ``held``: pods by group; ``gpus``: GPUs in all."""

    groups: frozenset[GroupKey]
    held: Mapping[GroupKey, int]
    gpus: float
    lost: frozenset[PodKey]
    moved: frozenset[PodKey]

    def gain_and_loss(self, other: PlacedGroups) -> tuple[list[str], list[str]]:
        """Pod groups of both outcomes that hold more pods in ``other``, and those that hold fewer."""
        both = sorted(self.groups & other.groups)
        gain = [str(key) for key in both if other.held.get(key, 0) > self.held.get(key, 0)]
        lose = [str(key) for key in both if other.held.get(key, 0) < self.held.get(key, 0)]
        return gain, lose


def difference(before: PlacedGroups, after: PlacedGroups) -> Object:
    """What differs between two outcomes, pod group by pod group."""
    gain, lose = before.gain_and_loss(after)
    new = sorted(after.groups - before.groups)
    return {
        "gain": gain,
        "lose": lose,
        "addedPlaced": [str(key) for key in new if after.held.get(key, 0)],
        "gpusBefore": before.gpus,
        "gpusAfter": after.gpus,
        "lostBefore": len(before.lost),
        "lostAfter": len(after.lost),
        "movedBefore": len(before.moved),
        "movedAfter": len(after.moved),
    }


class Cycles:
    """Decides snapshots, one after the other; objects that did not change are not read again."""

    def __init__(
        self, settings: Settings, usage: Mapping[str, Any] | None = None, deadline: float = inf
    ) -> None:
        """``deadline``: value of ``time.monotonic()`` after which no further cycle begins, whatever work is
        left."""
        self.settings = settings
        self.deadline = deadline
        self.work = Work(inf)
        """What further cycles and models may do. It is counted, so a busy machine gives the same answer."""
        self.count = 0
        self._usage = usage
        self._memo = ParseMemo()
        # Every question needs a model sooner or later, so loading it is not charged to any cycle.
        load_solver()

    def parse(self, draft: Draft) -> Snapshot:
        """The snapshot of a draft."""
        label = self.settings.users.label
        return parse(draft.raw, now=draft.now, usage=self._usage, memo=self._memo, user_label=label)

    def decide(self, draft: Draft) -> DecidedCycle:
        """The cycle on a draft."""
        self.count += 1
        began = time.monotonic()
        snapshot = self.parse(draft)
        left = max(LEAST_SECONDS, self.deadline - began)
        until = time.monotonic() + min(self.settings.solver.budget_seconds, left)
        plan = decide(snapshot, self.settings, deadline=until, trial=True)
        self.work.left -= READ_WORK + plan.work
        return DecidedCycle(draft, Situation(snapshot, self.settings, plan), time.monotonic() - began)

    def over(self) -> str:
        """Why no further cycle begins; "" while work and time are left."""
        if time.monotonic() >= self.deadline:
            return "the deadline has passed"
        return "" if self.work.left > 0 else "the work that the budget allows is done"


def carried_out(decided: DecidedCycle, seconds: float) -> Draft:
    """The snapshot ``seconds`` later: the plan is carried out, and evicted pods are pending again."""
    draft = Draft(decided.draft.raw, decided.draft.now)
    carry_out(draft, decided.situation.plan)
    draft.now += seconds
    return draft
