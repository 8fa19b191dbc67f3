"""The loop: read the cluster, decide, act. It runs at once after a change, and rests without one (0.2)."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.clock import next_look, unproved_pause
from kai_cp.kube.scheduler.comparison import Comparison
from kai_cp.kube.scheduler.decider import Decided, Decider
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions
from kai_cp.kube.scheduler.orders import Sending
from kai_cp.kube.scheduler.reports import Reporter
from kai_cp.kube.telemetry.cycles import CycleLog, CycleRecord
from kai_cp.kube.telemetry.metrics import SchedulerMetrics
from kai_cp_models.turns import GIVES_WAY

LOG = logging.getLogger(__name__)
SETTLE_SECONDS: Final = 0.03
"""Changes come in bursts; a cycle waits this long for the rest of one."""
LONGEST_SLEEP_SECONDS: Final = 600.0
HUNG_SECONDS: Final = 600.0
"""A cycle that takes longer will not end."""
FAILED_CYCLES: Final = 10
"""After so many defects in a row, what the process remembers may be at fault, and it should start again."""
SENDING_SECONDS: Final = 0.1
"""A cycle waits for its orders to be sent for this long: most have no more. The others are sent beside the
next cycles."""


class Scheduler:
    """One shard's loop. It ends at :meth:`stop`, or with the exception of a cycle that failed."""

    def __init__(
        self,
        cache: ClusterCache,
        cluster: ApiCluster,
        decider: Decider,
        reporter: Reporter,
        backoff: BindBackoff,
        *,
        options: SchedulerOptions,
        metrics: SchedulerMetrics,
        log: CycleLog | None = None,
        settings_hash: str = "",
        usage: Callable[[], Mapping[str, Any] | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._cluster = cluster
        self._decider = decider
        self._reporter = reporter
        self._backoff = backoff
        self._options = options
        self._metrics = metrics
        self._settings_hash = settings_hash
        self._usage = usage
        self._clock = clock
        self._comparison = Comparison()
        self._number = 0
        self._unproved = 0
        self._stopping = threading.Event()
        self._sending: deque[tuple[CycleRecord, Sending]] = deque()
        """Cycles of which not all is sent, or an earlier one's is not."""
        self._dear: frozenset[str] = frozenset()
        """Namespaces that cost the last cycle much, or of which it left orders to be sent."""
        self._others = threading.Event()
        """Set when a pod came or left in another namespace than those, or this ends."""
        self._for_others = False
        """Whether such a pod came before the cycle that is under way."""
        self._hurried = 0
        """Cycles in succession before which such a pod came."""
        cache.stores[resources.PODS].listen(self._noticed)
        cluster.deciding = self.deciding
        cluster.hurry(self.hurried)
        self.cycles = log or CycleLog()
        self._busy_since: float | None = None
        self._defects = 0
        """Cycles in a row that a defect ended."""

    @property
    def mode(self) -> str:
        """What the scheduler does with its plans."""
        return self._options.mode.value

    def fault(self) -> str:
        """Why the process should be restarted: cycles do not end, or end by defects; "" if all is well."""
        began = self._busy_since
        if began is not None and time.monotonic() - began > HUNG_SECONDS:
            return "a cycle does not end"
        failed = self._defects
        return f"{failed} cycles in a row failed; the log has the defect" if failed >= FAILED_CYCLES else ""

    def deciding(self) -> bool:
        """Whether a cycle is under way, so that reports wait."""
        return self._busy_since is not None

    def hurried(self) -> bool:
        """Whether orders and reports wait for new pods of others; they do not for a steady stream."""
        return self._hurried <= GIVES_WAY and (self._for_others or self._others.is_set())

    def stop(self) -> None:
        """End after the present cycle."""
        self._stopping.set()
        self._others.set()
        self._cache.wake.set()

    def run(self) -> None:
        """Look and act until told to stop."""
        if self._options.mode is Mode.ENFORCE:
            self._cluster.catch_up()
        due: float | None = self._clock()
        while not self._stopping.is_set():
            changed = self._wait(due)
            if self._stopping.is_set():
                return
            began = time.monotonic()
            self._unproved = 0 if changed else self._unproved + 1
            self._busy_since = began
            try:
                due = self.cycle()
                self._defects = 0
            except KubeError:
                raise
            except Exception:
                # A defect in one cycle's data must not stop the others; it is logged and tried again.
                self._defects += 1
                LOG.exception(
                    "the cycle failed, and is tried again: report this defect with its trace",
                    extra={"cycle": self._number, "failed": self._defects},
                )
                self._metrics.failed()
                due = self._clock() + unproved_pause(self._unproved)
            self._busy_since = None
            self._for_others = False
            took = time.monotonic() - began
            # What is being sent changes the cluster all the time, and says nothing new.
            left = bool(self._cluster.orders.left)
            self._rest(self._options.schedule_period if left else min(self._options.schedule_period, took))

    def _rest(self, seconds: float) -> None:
        """Never be busier than half the time, and never slower than the period, while changes keep coming.

        The rest is for namespaces that cost much: a new pod of another namespace needs no rest before it.
        """
        if self._dear:
            self._others.wait(seconds)
        else:
            self._stopping.wait(seconds)

    def _noticed(self, old: Object | None, new: Object | None) -> None:
        """Whether a pod came or left in a namespace that costs little."""
        pod = new or old
        if (old is None or new is None) and pod and pod["metadata"].get("namespace") not in self._dear:
            self._others.set()

    def _wait(self, due: float | None) -> bool:
        """Wait for a change or until ``due``; returns whether something changed."""
        seconds = LONGEST_SLEEP_SECONDS if due is None else max(0.0, due - self._clock())
        changed = self._cache.wake.wait(min(seconds, LONGEST_SLEEP_SECONDS))
        if changed:
            self._stopping.wait(min(SETTLE_SECONDS, self._options.schedule_period))
        self._cache.wake.clear()
        if not self._stopping.is_set():
            self._for_others = self._others.is_set()
            self._hurried = self._hurried + 1 if self._for_others else 0
            self._others.clear()
        return changed

    def cycle(self) -> float | None:
        """Run one cycle; returns when to look again if nothing changes, or None."""
        self._number += 1
        started = self._clock()
        marks = [("begin", time.monotonic())]
        tidy = self._options.mode is not Mode.ENFORCE or self._cluster.tidy()
        raw = self._cluster.snapshot()
        marks.append(("snapshot", time.monotonic()))
        usage = self._usage()
        decided = self._decider(raw, started, usage)
        marks.append(("prepare", time.monotonic()))
        sending = Sending()
        observed: Mapping[str, int] = {}
        if self._options.mode is Mode.ENFORCE:
            pods = decided.snapshot.pod_by_key
            seen = {one.pod: pods[one.pod].uid for one in decided.plan.decisions if one.pod in pods}
            sending = self._cluster.order(decided.plan, seen)
            sending.wait(SENDING_SECONDS)
        else:
            observed = self._compare(decided)
        self._cluster.orders.left = self._cluster.orders.namespaces()
        self._dear = decided.dear | self._cluster.orders.left
        marks.append(("write", time.monotonic()))
        again = self._report(decided)
        marks.append(("report", time.monotonic()))
        seconds = {name: at - marks[i][1] for i, (name, at) in enumerate(marks[1:])}
        for phase in ("solve", "check"):
            # The engine's own count; the rest of deciding is handing the snapshot over and reading it.
            seconds[phase] = min(decided.plan.timings.get(phase, 0.0), seconds["prepare"])
            seconds["prepare"] -= seconds[phase]
        cycle = CycleRecord(
            self._number,
            started,
            raw,
            decided.snapshot,
            decided.plan,
            sending.results(),
            seconds,
            self._settings_hash,
            decided.problem,
            observed,
            usage,
        )
        self.cycles.add(cycle)
        self._say(cycle)
        self._sending.append((cycle, sending))
        settled = self._settle()
        if not decided.problem:
            self._metrics.succeeded()
        return self._next(decided, again, settled=settled and tidy)

    def _settle(self) -> bool:
        """Record, in their order, the cycles whose orders are all sent.

        Returns whether no cycle is left and all orders were carried out.
        """
        done = True
        while self._sending and self._sending[0][1].done:
            cycle, sending = self._sending.popleft()
            cycle = replace(cycle, results=sending.results())
            self.cycles.add(cycle)
            self._metrics.observe(cycle)
            done = self._all_done(cycle) and done
        return done and not self._sending

    def _report(self, decided: Decided) -> float | None:
        """Report why pods wait. A defect of a report does not stop the cycle, which has been carried out."""
        try:
            return self._reporter.report(decided.snapshot, decided.plan)
        except KubeError:
            raise
        except Exception:
            LOG.exception(
                "a cycle's reports were not made, and are tried again: report this defect with its trace",
                extra={"cycle": self._number},
            )
            self._metrics.failed()
            return self._clock() + unproved_pause(self._unproved)

    def _next(self, decided: Decided, again: float | None, *, settled: bool) -> float | None:
        now = self._clock()
        candidates = [
            again,
            decided.again_at,
            self._backoff.next_release(now),
            self._cluster.moved.next_end(now),
            next_look(decided.snapshot, decided.plan, self._options.stuck_in_releasing_threshold),
        ]
        if held := self._cluster.rivals.hold_seconds_left():
            candidates.append(now + held)
        if not settled:
            candidates.append(now + self._options.schedule_period)
        proved = all(stage.status == "OPTIMAL" for stage in decided.plan.stages)
        undecided = any(entry.reason == "NotDecidedInTime" for entry in decided.plan.unscheduled)
        if decided.problem or undecided or decided.unfinished or (decided.plan.unscheduled and not proved):
            candidates.append(now + unproved_pause(self._unproved))
        return min((instant for instant in candidates if instant is not None), default=None)

    def _compare(self, decided: Decided) -> Mapping[str, int]:
        compared = self._comparison.compare(decided.snapshot, decided.plan)
        for outcome, count in compared.counts.items():
            self._metrics.compared(outcome, count)
        if compared.counts:
            extra = {**compared.counts, "differences": list(compared.differences)}
            LOG.info("compared with what happened", extra=extra)
        return compared.counts

    def _say(self, cycle: CycleRecord) -> None:
        kinds = Counter(decision.kind for decision in cycle.plan.decisions)
        LOG.info(
            "cycle",
            extra={
                "cycle": cycle.number,
                "binds": kinds["Bind"],
                "nominations": kinds["Nominate"],
                "evictions": kinds["Evict"],
                "unscheduled": len(cycle.plan.unscheduled),
                "setAside": len(cycle.snapshot.set_aside),
                "seconds": {name: round(value, 4) for name, value in cycle.seconds.items()},
                "settings": cycle.settings,
                **({"problem": cycle.problem} if cycle.problem else {}),
            },
        )

    def _all_done(self, cycle: CycleRecord) -> bool:
        """Whether the cycle's decisions were carried out or are void; the others are logged."""
        done = True
        for decision, outcome, message in cycle.results:
            if outcome in ("conflict", "failed"):
                LOG.warning(
                    "a decision was not carried out, and the next cycle decides again",
                    extra={
                        "pod": str(decision.pod),
                        "kind": decision.kind,
                        "outcome": outcome,
                        "reason": message,
                    },
                )
                done = False
        return done
