"""The page on the loopback port: ``/`` is the page, and ``/view/data`` its data from the last cycle.

``/view/fixes?podGroup=NAMESPACE/NAME`` describes what would help, where the scheduler explains. All paths
only read. No other page may frame the page; it contacts no other host, and caches do not keep it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kai_cp.decisions import from_json, to_json
from kai_cp.kube.scheduler.anonymize import Anonymizer
from kai_cp.kube.serving.http import JSON, Query, Response, Route
from kai_cp.kube.telemetry.cycles import CycleLog, CycleRecord
from kai_cp.reader import parse
from kai_cp.view.data import view
from kai_cp.view.page import DATA_PATH, FIXES_PATH, page, policy
from kai_cp_models.settings import Settings

HTML: Final = "text/html; charset=utf-8"
GUARDED: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FRAMES: Final = "; frame-ancestors 'none'"


class LastView:
    """The document of the last cycle, made once per cycle by one request at a time."""

    def __init__(
        self,
        cycles: CycleLog,
        mode: str,
        *,
        anonymize: bool,
        asks: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._cycles = cycles
        self._mode = mode
        self._anonymize = anonymize
        self._asks = asks and not anonymize
        self._settings = settings
        self._lock = threading.Lock()
        self._made: tuple[int, bytes] | None = None

    def __call__(self) -> bytes | None:
        """The document as JSON; None before the first cycle."""
        with self._lock:
            cycles = self._cycles.all()
            if not cycles:
                return None
            last = cycles[-1]
            if self._made is None or self._made[0] != last.number:
                document = self._document(last)
                document["cycles"] = [cycle.summary() for cycle in cycles]
                self._made = (last.number, orjson.dumps(document))
            return self._made[1]

    def _document(self, cycle: CycleRecord) -> dict[str, Any]:
        snapshot, plan = cycle.snapshot, cycle.plan
        if self._anonymize:
            renaming = Anonymizer()
            snapshot = parse(renaming.snapshot(cycle.raw), now=cycle.started)
            plan = from_json(renaming.decisions(to_json(cycle.snapshot, cycle.plan)))
        name, settings = f"cycle {cycle.number}", self._settings
        return view(name, snapshot, plan, mode=self._mode, asks=self._asks, settings=settings)


Explain = Callable[[Mapping[str, str]], Response]
"""What ``/explain`` answers to its parameters."""


def view_routes(last: Callable[[], bytes | None], explain: Explain | None = None) -> dict[str, Route]:
    """``/``, ``/view/data`` and, where something explains, ``/view/fixes``."""

    def shown(rest: str) -> Response | None:
        if rest:
            return None
        headers = {**GUARDED, "Content-Security-Policy": policy(live=True) + FRAMES}
        return Response(page(None).encode(), HTML, headers=headers)

    def data(rest: str) -> Response | None:
        if rest:
            return None
        made = last()
        if made is None:
            return Response(b"no cycle yet\n", status=503)
        return Response(made, JSON, headers=GUARDED)

    found: dict[str, Route] = {"/": shown, DATA_PATH: data}
    if explain is not None:
        found[FIXES_PATH] = Query(asked=lambda parameters: _in_words(explain(parameters)))
    return found


def _in_words(answer: Response) -> Response:
    """The fixes of an explanation as lines of text; an error answer is passed on."""
    from kai_cp.explain.text import remedies

    if answer.status != 200:
        return answer
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    (entry,) = orjson.loads(body)["explanations"]
    return Response(orjson.dumps(remedies(entry)), JSON, headers=GUARDED)
