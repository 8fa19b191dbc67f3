"""One simulated run: arrivals, cycles, run times and evictions on the in-memory cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from kai_cp.bench.generate.objects import (
    NOW,
    GangSpec,
    NodeShape,
    PodRequest,
    RawCluster,
    ago,
    group,
    node,
    pod,
    queue,
)
from kai_cp.kube.api.promises import promises
from kai_cp.reader import ParseMemo, parse
from kai_cp.simulate.fake_cluster import FakeCluster
from kai_cp.simulate.policies import SimulatedPolicy
from kai_cp.simulate.shares import share_error
from kai_cp.simulate.workload import NODE_GPUS, Job, WorkloadTrace
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.cluster import faults
from kai_cp_models.records.notes import EXPECTED
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

NAMESPACE: Final = "default"


@dataclass
class _Life:
    """The history of a pod group."""

    job: Job
    running: set[str] = field(default_factory=set)
    first_start: float | None = None
    started: float | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class StartPromise:
    """A pod group's first promised start, and what became of it. ``started`` is None if it has not started by
    the end."""

    gpus: int
    promised: float
    started: float | None
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run. Times in seconds; ``lost_gpu_seconds`` is work lost by evictions."""

    waits: tuple[tuple[int, float], ...]
    """(GPUs, seconds until the start, or until the end of the run) of every pod group."""
    finished: int
    utilisation: float
    evictions: int
    moves: int
    lost_gpu_seconds: float
    share_error: float
    cycles: int
    slowest_cycle: float
    errors: tuple[str, ...]
    promises: tuple[StartPromise, ...] = ()
    idle_gpu_seconds: float = 0.0
    """GPU-seconds that stood idle in held capacity."""


class Simulation:
    """A workload on a cluster under a policy."""

    def __init__(self, workload: WorkloadTrace, policy: SimulatedPolicy, settings: Settings) -> None:
        self._workload = workload
        self._policy = policy
        self._settings = settings
        raw = RawCluster()
        raw.queues.append(queue("all", -1, ago(90 * 86_400)))
        raw.queues += [
            queue(name, quota, ago(80 * 86_400 - i), "all") for i, (name, quota) in enumerate(workload.quotas)
        ]
        raw.nodes += [
            node(f"node-{i:03}", NodeShape(gpus=NODE_GPUS), {"rack": f"rack-{i // 8}", "zone": "zone-0"})
            for i in range(workload.nodes)
        ]
        self._start = NOW.timestamp()
        self._twin = FakeCluster(
            raw.snapshot(), now=self._start, bind_seconds=1, start_seconds=5, recreate=True, same_name=True
        )
        self._lives: dict[str, _Life] = {}
        self._memo = ParseMemo()
        self._logged = 0
        self._moves = 0
        self._evictions = 0
        self._lost = 0.0
        self._errors: list[str] = []
        self._again: float | None = None
        self._promised: dict[str, tuple[float, list[str]]] = {}
        self._held_nodes: list[Mapping[str, float]] = []
        self._idle = 0.0

    def run(self) -> Run:
        """Simulate the whole workload."""
        capacity = float(self._workload.nodes * NODE_GPUS)
        coming = iter(self._workload.jobs)
        following = next(coming, None)
        used: list[float] = []
        errors: list[float] = []
        cycles, slowest = 0, 0.0
        changed = False
        for now in self._ticks():
            self._twin.advance(self._start + now - self._twin.now)
            changed |= self._listen()
            changed |= self._end_jobs(now)
            changed |= self._again is not None and self._again <= self._twin.now
            while following is not None and following.arrives <= now:
                self._arrive(following)
                following = next(coming, None)
                changed = True
            used.append(sum(self._held().values()) / capacity)
            self._idle += self._workload.tick * self._idle_now()
            errors.append(self._share_error(capacity))
            if changed:
                seconds, plan = self._cycle()
                cycles += 1
                slowest = max(slowest, seconds)
                # A promised start becomes possible when pods have ended; the twin's log has the time.
                changed = any(decision.kind != "Bind" for decision in plan.decisions)
        end = self._workload.seconds
        return Run(
            waits=tuple(
                (life.job.total, (end if life.first_start is None else life.first_start) - life.job.arrives)
                for life in self._lives.values()
            ),
            finished=sum(life.done for life in self._lives.values()),
            utilisation=fmean(used) if used else 0.0,
            evictions=self._evictions,
            moves=self._moves,
            lost_gpu_seconds=self._lost,
            share_error=fmean(errors) if errors else 0.0,
            cycles=cycles,
            slowest_cycle=slowest,
            errors=tuple(self._errors),
            promises=tuple(
                StartPromise(self._lives[name].job.total, at, self._lives[name].first_start, tuple(causes))
                for name, (at, causes) in self._promised.items()
            ),
            idle_gpu_seconds=self._idle,
        )

    def _ticks(self) -> Iterator[float]:
        now = self._workload.tick
        while now <= self._workload.seconds:
            yield now
            now += self._workload.tick

    def _arrive(self, job: Job) -> None:
        age = self._start - (self._start + job.arrives)
        gang = GangSpec(job.name, job.queue, PodRequest(job.gpus), job.pods, "train", age)
        self._lives[job.name] = _Life(job)
        self._twin.add_group(group(gang, running=False))
        if job.declared is not None:
            key = GroupKey(NAMESPACE, job.name)
            self._twin.note(key, {EXPECTED: f"{max(1, round(job.declared))}s"})
        for i in range(job.pods):
            self._twin.add_pod(pod(gang, i))

    def _cycle(self) -> tuple[float, Plan]:
        begin = time.monotonic()
        label = self._settings.users.label
        snapshot = parse(self._twin.snapshot(), now=self._twin.now, memo=self._memo, user_label=label)
        plan = self._policy(snapshot, self._settings)
        seconds = time.monotonic() - begin
        self._errors += map(str, faults(snapshot, plan, self._settings))
        places = {decision.pod for decision in plan.decisions if decision.kind == "Nominate"}
        self._moves += sum(d.kind == "Evict" and d.pod in places for d in plan.decisions)
        self._twin.apply(plan)
        self._promise(snapshot, plan)
        return seconds, plan

    def _promise(self, snapshot: Snapshot, plan: Plan) -> None:
        """Write the promises, and remember each first promise and why it moved."""
        self._again = plan.again_at
        for key, notes in promises(snapshot, plan):
            self._twin.note(key, notes)
        self._held_nodes = []
        for entry in plan.reservations or ():
            name = entry.group.name
            if entry.start is not None and entry.state in ("made", "kept", "earlier", "later"):
                self._held_nodes.append(entry.nodes)
                self._promised.setdefault(name, (entry.start - self._start, []))
            if entry.cause is not None and name in self._promised:
                self._promised[name][1].append(entry.cause)

    def _idle_now(self) -> float:
        """The GPUs that are both held and idle now."""
        used: Counter[str] = Counter()
        for item in self._twin.snapshot()["rawObjects"]["pods"] if self._held_nodes else ():
            job = item["metadata"]["name"].rsplit("-", 1)[0]
            used[item["spec"].get("nodeName") or ""] += self._lives[job].job.gpus
        return sum(
            min(gpus, max(0.0, NODE_GPUS - used[name]))
            for nodes in self._held_nodes
            for name, gpus in nodes.items()
        )

    def _listen(self) -> bool:
        """Read what the twin did since the last call; returns whether free capacity may have changed."""
        news = self._twin.log[self._logged :]
        self._logged = len(self._twin.log)
        changed = False
        for when, what, key in news:
            name = key.split("/")[1].rsplit("-", 1)[0]
            life = self._lives[name]
            now = when - self._start
            if what == "running":
                life.running.add(key)
                if len(life.running) == life.job.pods:
                    life.started = now
                    life.first_start = now if life.first_start is None else life.first_start
            elif what == "evicted":
                self._evictions += 1
                life.running.discard(key)
                if life.started is not None:
                    self._lost += life.job.total * (now - life.started)
                    life.started = None
            changed |= what in ("gone", "failed", "evicted")
        return changed

    def _end_jobs(self, now: float) -> bool:
        ended = False
        for life in self._lives.values():
            if not life.done and life.started is not None and life.started + life.job.seconds <= now:
                life.done = True
                life.running.clear()
                for i in range(life.job.pods):
                    self._twin.remove(NAMESPACE, f"{life.job.name}-{i}")
                ended = True
        return ended

    def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for life in self._lives.values():
            if life.running and not life.done:
                held[life.job.queue] += life.job.gpus * len(life.running)
        return held

    def _share_error(self, capacity: float) -> float:
        asked: Counter[str] = Counter()
        for life in self._lives.values():
            if not life.done:
                asked[life.job.queue] += life.job.total
        return share_error(capacity, dict(self._workload.quotas), asked, self._held())
