"""Explanations in a cluster: ``GET /explain`` and ``POST /what-if`` on the loopback port, and conditions.

All use the last cycle's snapshot, one at a time, in a low-priority process of their own. Waiting pod groups
are explained in a small part of the spare time; their conditions then name the cheapest fix.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from kai_cp.explain.draft import BadOperation
from kai_cp.explain.tasks import ExplainTask, RefusedQuestion, WhatIfTask, job, question_of
from kai_cp.explain.text import describe
from kai_cp.kube.api.memory import Memory
from kai_cp.kube.serving.http import JSON, Query, Response
from kai_cp.kube.telemetry.cycles import CycleLog, CycleRecord
from kai_cp.worker import Reply, Worker
from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import Settings

LOG = logging.getLogger(__name__)
EXPLAIN_SECONDS: Final = 30.0
WHAT_IF_SECONDS: Final = 60.0
FIX_SECONDS: Final = 10.0
MOST_BODY_BYTES: Final = 1_000_000
SHARE: Final = 0.1
"""Part of the time that explaining for conditions takes of one core at most."""
CONDITION_SECONDS: Final = 20.0
"""Longest explanation for a condition: loading the solver alone takes some of it on a busy machine."""
CYCLES_PART: Final = 0.75
"""Part of the time after which no further cycle begins, so that an answer is written on a busy machine."""
LOOK_SECONDS: Final = 1.0
REMEMBERED: Final = 2_000
MOST_TRIES: Final = 3
"""How often a pod group is explained whose explanation was late or failed, while its situation stays."""
MOST_SENTENCE: Final = 600


@dataclass(frozen=True, slots=True)
class _Told:
    """The condition's text for a pod group that waits with ``reason`` and ``message``; "" after ``tries``
    failed.
    """

    reason: str
    message: str
    words: str
    tries: int

    def fits(self, entry: Unscheduled) -> bool:
        """Whether the group still waits with the same reason and message."""
        return (self.reason, self.message) == (entry.reason, entry.message)


class Explaining:
    """The worker that explains, and its callers."""

    def __init__(
        self,
        cycles: CycleLog,
        settings: Settings,
        *,
        anonymize: bool = False,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``wake`` starts another cycle, so that conditions show what was found."""
        self._cycles = cycles
        self._settings = settings
        self._anonymize = anonymize
        self._wake = wake
        self._busy = threading.Lock()
        self._worker = Worker(job)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: Memory[GroupKey, _Told] = Memory(REMEMBERED)

    def routes(self) -> dict[str, Callable[[str], Response | None]]:
        """``/explain`` and ``/what-if``."""
        return {
            "/explain": Query(asked=self.explain),
            "/what-if": Query(posted=self._what_if, most_bytes=MOST_BODY_BYTES),
        }

    def start(self) -> None:
        """Begin to explain waiting pod groups."""
        self._thread = threading.Thread(target=self._run, name="explain", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and abandon the explanation in progress."""
        self._stopping.set()
        self._worker.stop()

    def words(self, entry: Unscheduled) -> str:
        """The explanation's sentence and the cheapest fix if they match what the cycle says now, else the
        cycle's message.
        """
        known = self._said.get(entry.group)
        if known is None or not known.fits(entry) or not known.words:
            return entry.message
        return known.words[:MOST_SENTENCE]

    # --- on the port -----------------------------------------------------------------------------

    def explain(self, parameters: Mapping[str, str]) -> Response:
        """The ``explanation/1`` of ``podGroup``, with fixes of ``kinds`` only."""
        name = parameters.get("podGroup", "")
        if not name or not set(parameters) <= {"podGroup", "kinds"}:
            return _refused("ask with ?podGroup=NAMESPACE/NAME, and &kinds=A,B for fixes of these kinds", 400)
        order = self._settings.explain.fix_order
        asked = parameters["kinds"].split(",") if "kinds" in parameters else list(order)
        wrong = [kind for kind in asked if kind and kind not in order]
        if wrong:
            return _refused(f"there is no kind {wrong[0]}; the kinds are {', '.join(order)}", 400)
        kinds = tuple(kind for kind in order if kind in asked)
        return self._ask(
            lambda cycle: ExplainTask(
                orjson.dumps(cycle.raw),
                cycle.started,
                self._settings,
                (name,),
                cycle.usage,
                kinds,
                FIX_SECONDS,
            ),
            EXPLAIN_SECONDS,
        )

    def _what_if(self, body: bytes) -> Response:
        try:
            question = question_of(body)
        except BadOperation as problem:
            return _refused(str(problem), 400)
        return self._ask(
            lambda cycle: WhatIfTask(
                orjson.dumps(cycle.raw), cycle.started, self._settings, question, cycle.usage
            ),
            WHAT_IF_SECONDS,
        )

    def _ask(self, task: Callable[[CycleRecord], ExplainTask | WhatIfTask], seconds: float) -> Response:
        if self._anonymize:
            return _refused("names are hidden here, so nothing is explained; take a snapshot instead", 403)
        cycles = self._cycles.all()
        if not cycles:
            return _refused("no cycle yet", 503)
        if not self._busy.acquire(timeout=CONDITION_SECONDS):
            return _refused("another question is being answered; ask again", 503)
        try:
            reply = self._run_within(task(cycles[-1]), seconds)
        finally:
            self._busy.release()
        if isinstance(reply.answer, RefusedQuestion):
            return _refused(reply.answer.sentence, 400)
        if isinstance(reply.answer, bytes):
            return Response(reply.answer + b"\n", JSON)
        if reply.end == "late":
            return _refused(f"it took longer than {seconds:g} s", 504)
        LOG.warning(
            "a question was not answered: report this defect with its details",
            extra={"error": reply.failure, "details": reply.details},
        )
        return _refused("it could not be worked out; the log says why", 500)

    def _run_within(self, task: ExplainTask | WhatIfTask, seconds: float) -> Reply:
        now = time.monotonic()
        return self._worker.run(replace(task, deadline=now + CYCLES_PART * seconds), now + seconds)

    # --- for conditions --------------------------------------------------------------------------

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._stopping.wait(pause):
            began = time.monotonic()
            try:
                self.explain_next()
            except Exception:
                LOG.exception("a condition was not explained: report this defect with its trace")
            # The rest of the time is for others.
            pause = max(LOOK_SECONDS, (time.monotonic() - began) * (1 - SHARE) / SHARE)

    def explain_next(self) -> None:
        """Explain one pod group whose situation changed, or else one whose last try failed."""
        cycles = self._cycles.all()
        if not cycles:
            return
        entry = self.next_of(cycles[-1].plan.unscheduled)
        if entry is None or not self._busy.acquire(blocking=False):
            return
        try:
            cycle = cycles[-1]
            task = ExplainTask(
                orjson.dumps(cycle.raw),
                cycle.started,
                self._settings,
                (str(entry.group),),
                cycle.usage,
                budget=CONDITION_SECONDS / 2,
                cheapest=True,
            )
            reply = self._run_within(task, CONDITION_SECONDS)
        finally:
            self._busy.release()
        found = orjson.loads(reply.answer)["explanations"][0] if isinstance(reply.answer, bytes) else {}
        self.remember(entry, told(found))
        if self.words(entry) != entry.message:
            self._wake()

    def remember(self, entry: Unscheduled, found: str) -> None:
        """Keep the text for a pod group in its present situation; "" if none was found in time."""
        known = self._said.get(entry.group)
        tries = known.tries if known is not None and known.fits(entry) else 0
        self._said.put(entry.group, _Told(entry.reason, entry.message, found, tries + 1))

    def next_of(self, waiting: Sequence[Unscheduled]) -> Unscheduled | None:
        """The waiting pod group to explain next: of those with the fewest tries the one whose last is longest
        ago, since the same ones may always be in a new situation; then in their order.
        """
        turns = {group: i for i, group in enumerate(self._said, 1)}
        open_ones = [
            (tries, turns.get(one.group, 0), i)
            for i, one in enumerate(waiting)
            if (tries := self._tries(one)) < MOST_TRIES
        ]
        return waiting[min(open_ones)[2]] if open_ones else None

    def _tries(self, entry: Unscheduled) -> int:
        """The number of failed tries in the group's present situation; ``MOST_TRIES`` if no try is needed."""
        known = self._said.get(entry.group)
        if known is None or not known.fits(entry):
            return 0
        return MOST_TRIES if known.words else known.tries


def told(entry: Mapping[str, Any]) -> str:
    """The text of a condition: the explanation's sentence and its cheapest fix; "" without explanation."""
    return "; ".join(part for part in (entry.get("message", ""), remedy(entry)) if part)


def remedy(entry: Mapping[str, Any]) -> str:
    """The cheapest fix of an explanation in a few words; "" without one.

    Users of the pod group's namespace read it in a condition, so it names no pod of another namespace.
    """
    fixes = entry.get("fixes") or []
    if not fixes:
        return ""
    if fixes[0]["kind"] == "wait":
        return f"starts at {fixes[0]['starts']} if declared ends are kept"
    return f"would start if you {describe(fixes[0], entry['podGroup'].partition('/')[0])}"


def _refused(sentence: str, status: int) -> Response:
    return Response(f"{sentence}\n".encode(), status=status)
