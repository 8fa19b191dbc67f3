"""``explanation/1``: why pod groups wait, what would help, when they start, and what evicted them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from kai_cp.decisions import ENGINE, cut_during, rfc3339, version
from kai_cp.documents.explained import RULES_OF_ACTIONS
from kai_cp.explain.cycle import Cycles, DecidedCycle
from kai_cp.explain.draft import Draft
from kai_cp.explain.fixes import Fixes, fixes_of
from kai_cp.explain.operations import beside_the_present
from kai_cp.explain.sentences import sentence
from kai_cp.explain.start import Start, Starts
from kai_cp.explain.trials import Fix, Trials
from kai_cp.json_types import Object, plain_number
from kai_cp_models.plan import Decision
from kai_cp_models.pods import (
    BASE_DIMENSIONS,
    CPU,
    GPU,
    MEMORY,
    MILLI,
    UNLIMITED,
    GroupKey,
    PodStatus,
)
from kai_cp_models.queries.shares import gpus_asked
from kai_cp_models.queries.why import (
    Blocking,
    FairLine,
    LevelledQueue,
    Position,
    Work,
    blocking_of_all,
    levelled_queues,
    question_of,
)
from kai_cp_models.settings import Settings
from kai_cp_models.shown import amount, quantity
from kai_cp_models.snapshot import PodGroup

SCHEMA: Final = "explanation/1"
MOST_AHEAD: Final = 200
"""The most pod groups ahead that are named, the last one among them; all are counted."""


@dataclass
class Explainer:
    """Explains the pod groups of one snapshot; its cycle is decided once."""

    draft: Draft
    settings: Settings
    usage: Mapping[str, Any] | None = None
    budget: float = 10.0
    """Work for the fixes and the start of each pod group; about seconds of an idle core."""
    kinds: Sequence[str] | None = None
    """Kinds of fixes to look for, in their order of cost; None: those of the settings."""
    cheapest: bool = False
    """Look for no kind beyond the first that helps."""
    deadline: float = inf
    """Value of ``time.monotonic()`` after which no further cycle begins."""
    timings: dict[str, float] = field(default_factory=lambda: {"decide": 0.0, "blocking": 0.0, "fixes": 0.0})

    def __post_init__(self) -> None:
        self._cycles = Cycles(self.settings, self.usage, self.deadline)
        began = time.monotonic()
        self.decided: DecidedCycle = self._cycles.decide(self.draft)
        self._line = FairLine(self.decided.situation)
        self._starts = Starts(self._cycles, self.decided)
        self._shared: dict[object, Blocking] = {}
        self.timings["decide"] = time.monotonic() - began

    def waiting(self) -> list[GroupKey]:
        """All pod groups that wait or that the cycle disturbs, in fair order, then by name."""
        situation = self.decided.situation
        touched = {one.group for one in situation.evicted.values()}
        found = [
            group.key
            for group in situation.snapshot.groups
            if group.key in touched or situation.state(group.key) in ("pending", "admitted")
        ]
        place = {key: i for i, key in enumerate(self._line.order)}
        return sorted(found, key=lambda key: (place.get(key, len(place)), key))

    def explain(self, key: GroupKey) -> Object:
        """The entry of one pod group."""
        return self.explain_all([key])[0]

    def explain_all(self, keys: Sequence[GroupKey]) -> list[Object]:
        """The entries of pod groups; equal asks share their blocking sets, and all share the work."""
        situation = self.decided.situation
        waiting = [situation.snapshot.group_by_key[key] for key in keys if situation.state(key) == "pending"]
        asked = {group.key: question_of(situation, group) for group in waiting}
        fresh: dict[object, PodGroup] = {}
        for group in waiting:
            if asked[group.key] not in self._shared:
                fresh.setdefault(asked[group.key], group)
        began = time.process_time()
        self._shared.update(zip(fresh, blocking_of_all(situation, list(fresh.values())), strict=True))
        self.timings["blocking"] += time.process_time() - began
        return [
            self._waiting_entry(key, self._shared[asked[key]]) if key in asked else self._entry(key)
            for key in keys
        ]

    def _entry(self, key: GroupKey) -> Object:
        """The entry of a pod group that does not wait."""
        situation = self.decided.situation
        entry = self._head(situation.snapshot.group_by_key[key], situation.state(key))
        entry["evictedBy"] = self._evicted_by(key)
        return entry

    def _waiting_entry(self, key: GroupKey, found: Blocking) -> Object:
        situation = self.decided.situation
        group = situation.snapshot.group_by_key[key]
        entry = self._head(group, "pending")
        began = time.monotonic()
        self._cycles.work = Work(self.budget)
        start, fixes = self._remedies(key, found)
        self.timings["fixes"] += time.monotonic() - began
        why = situation.reasons.get(key)
        if found.sure:
            entry["proof"] = "proved" if found.proved else "not proved"
        entry["message"] = sentence(situation, group, why, found)
        entry["blocking"] = [sorted(families) for families in found.sets]
        entry["minimal"] = found.minimal
        entry["notInvolved"] = found.not_involved
        entry["corrections"] = [sorted(families) for families in found.corrections]
        entry["fixes"] = [self._fix(key, fix) for fix in fixes.found]
        entry["noFix"] = fixes.none
        entry["start"] = start.document()
        return entry

    def _remedies(self, key: GroupKey, found: Blocking) -> tuple[Start, Fixes]:
        start = self._starts.of(key, found)
        kinds = self.settings.explain.fix_order if self.kinds is None else self.kinds
        if not kinds:
            return start, Fixes()
        trials = Trials(self._cycles, self.decided, key, found)
        return start, fixes_of(trials, start, kinds, cheapest=self.cheapest)

    def _head(self, group: PodGroup, state: str) -> Object:
        """The part of an entry that groups in every state have."""
        situation = self.decided.situation
        batch = situation.batch(group.key)
        pods = batch.all_pods if batch is not None else ()
        waits = any(
            pod.status in (PodStatus.PENDING, PodStatus.GATED)
            for pod in situation.snapshot.members[group.key]
        )
        since = max(group.created, group.last_eviction or 0.0)
        why = situation.reasons.get(group.key)
        place = self._line.position(group.key)
        return {
            "podGroup": str(group.key),
            "queue": group.queue,
            "state": state,
            "waitingSeconds": max(0, int(situation.snapshot.now - since)) if waits else 0,
            "needs": {
                "pods": len(pods),
                "gpu": plain_number(gpus_asked(situation.snapshot, pods)),
                "cpu": sum(pod.spec.requests[CPU] for pod in pods),
                "memory": sum(pod.spec.requests[MEMORY] for pod in pods),
            },
            "reason": "" if why is None else why.reason,
            "message": _state_words(state) if why is None else why.message,
            "proof": "proved" if why is None or why.proved else "not proved",
            "blocking": [],
            "minimal": True,
            "notInvolved": [],
            "corrections": [],
            "position": position_document(place),
            "fixes": [],
            "noFix": [],
            "start": None,
            "evictedBy": None,
        }

    def _fix(self, key: GroupKey, fix: Fix) -> Object:
        gain, lose = self.decided.outcome.gain_and_loss(fix.decided.outcome)
        starts = "now" if fix.decided.binds(key) else "when the room is free"
        if fix.kind == "wait":
            starts = str(fix.ops[0]["now"])
        found: Object = {
            "kind": fix.kind,
            "amount": fix.amount,
            "unit": fix.unit,
            "ops": beside_the_present(self.decided.draft.raw, fix.ops),
            "least": "proved" if fix.proved else "not proved",
            "starts": starts,
            "gain": gain,
            "lose": lose,
        }
        if fix.amounts:
            found["amounts"] = fix.amounts
        return found

    def _evicted_by(self, key: GroupKey) -> Object | None:
        situation = self.decided.situation
        mine = [one for one in situation.evicted.values() if one.group == key]
        if not mine:
            return None
        first: Decision = mine[0]
        stages = [s for s in situation.plan.stages if s.action == first.action and s.goal]
        triggers = sorted({str(trigger) for one in mine for trigger in one.triggers})
        return {
            "action": first.action,
            "for": triggers,
            "rule": RULES_OF_ACTIONS[first.action],
            "pods": sorted(str(one.pod) for one in mine),
            "because": self._numbers(first, key),
            "alternatives": [
                {"name": s.name, "value": s.objective, "bound": s.bound, "proved": s.status == "OPTIMAL"}
                for s in stages
            ],
        }

    def _numbers(self, decision: Decision, key: GroupKey) -> str:
        """The rule with the numbers of both sides."""
        situation = self.decided.situation
        group = situation.snapshot.group_by_key[key]
        asker = situation.snapshot.group_by_key.get(decision.triggers[0]) if decision.triggers else None
        if decision.action == "preempt" and asker is not None:
            return (
                f"{asker.key} has priority {asker.priority}, {key} has {group.priority} (queue {group.queue})"
            )
        if decision.action == "reclaim" and asker is not None:
            mine, theirs = levelled_queues(situation, asker.queue, group.queue)
            over = next((d for d in (GPU, CPU, MEMORY) if theirs.allocated[d] > theirs.fair[d] >= 0), GPU)
            return f"{_share(theirs, over)}; {_share(mine, over)}"
        return decision.message


def position_document(place: Position) -> Object:
    """A position as the explanation has it."""
    ahead = place.ahead
    if len(ahead) > MOST_AHEAD:
        ahead = (*ahead[: MOST_AHEAD - 1], ahead[-1])
    return {
        "at": place.at,
        "of": place.of,
        "inQueue": place.in_queue,
        "aheadGpus": plain_number(place.ahead_gpus),
        "ahead": [
            {
                "podGroup": str(one.group),
                "queue": one.queue,
                "gpu": plain_number(one.gpus),
                "because": one.because,
            }
            for one in ahead
        ],
    }


def document(explainer: Explainer, entries: Sequence[Object], sha256: str) -> Object:
    """The whole document."""
    during = cut_during(explainer.decided.situation.plan.stages)
    return {
        "schema": SCHEMA,
        "engine": ENGINE,
        "version": version(),
        "snapshotSha256": sha256,
        "now": rfc3339(explainer.draft.now),
        **({} if during is None else {"cutDuring": during}),
        "explanations": list(entries),
        "timings": {name: round(seconds, 6) for name, seconds in explainer.timings.items()},
    }


def _state_words(state: str) -> str:
    return {
        "running": "all its pods run, and this cycle takes nothing away",
        "admitted": "its next batch gets its places in this cycle",
        "moved": "this cycle moves pods of it to other nodes",
        "evicted": "this cycle evicts pods of it",
    }.get(state, "")


def _share(queue: LevelledQueue, d: int) -> str:
    """What a queue holds of a resource, and its fair share of it."""
    scale = MILLI if d == GPU else 1
    name = BASE_DIMENSIONS[d]
    holds = quantity(name, round(queue.allocated[d] * scale))
    share = "unlimited" if queue.fair[d] == UNLIMITED else amount(name, round(queue.fair[d] * scale))
    return f"queue {queue.name} holds {holds}, its fair share is {share}"
