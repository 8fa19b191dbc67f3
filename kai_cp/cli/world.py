"""A snapshot with the decisions on it: from a file, from the zip of a cycle, or decided now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    INTERRUPTED,
    OFFLINE,
    WRONG_USAGE,
    complain,
    fail,
    file_or_exit,
    instant_or_exit,
    settings_or_exit,
    snapshot_or_exit,
    source_or_exit,
    usage_or_exit,
)

if TYPE_CHECKING:
    from kai_cp.questions.question import SnapshotDetails
    from kai_cp_models.plan import Plan
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

PART: Final = "this is a part of an answer (--queue, --namespace or --group)"
"""The error of decisions that a selection has narrowed."""

MOST_NAMED: Final = 20
"""The most broken rules that are named one by one."""

DecisionsArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DECISIONS]",
        help="decisions/1, as solve writes it. Default: those recorded in the snapshot's zip, or else what "
        "solve decides now.",
    ),
]


@dataclass(frozen=True, slots=True)
class DecidedSnapshot:
    """A snapshot and its plan; ``plan`` is None if no decisions were wanted."""

    name: str
    digest: str
    snapshot: Snapshot
    plan: Plan | None
    settings: Settings
    tells_what_waits: bool
    """Whether the plan names the pod groups that stay pending; decisions of KAI do not."""
    broken: tuple[str, ...] = ()
    """Rules that given decisions break, one sentence each; of many the first, and how many more."""

    def facts(self) -> SnapshotDetails:
        """The input of the questions. The fair order is computed once."""
        from kai_cp.files import within

        with within(self.settings.limits.read_seconds, self.name):
            return self._facts()

    def _facts(self) -> SnapshotDetails:
        from kai_cp.decisions import Asks, to_json
        from kai_cp.inspection import inspection
        from kai_cp.questions.question import SnapshotDetails
        from kai_cp_models.plan import Plan
        from kai_cp_models.pods import GroupKey
        from kai_cp_models.queries.shares import OwedGroups

        plan = self.plan or Plan()
        inspected = inspection(self.snapshot, self.digest, self.settings)
        places = {
            GroupKey(*entry["podGroup"].split("/", 1)): entry["position"] or 0
            for entry in inspected["waiting"]
        }
        return SnapshotDetails(
            self.name,
            to_json(self.snapshot, plan, sha256=self.digest, asks=Asks(self.snapshot, places)),
            inspected,
            OwedGroups.of(self.snapshot, plan),
        )


def world_or_exit(
    snapshot: str,
    decisions: Path | None,
    *,
    now: str | None,
    budget: float | None,
    config: Path | None,
    usage: Path | None = None,
    undecided: bool = False,
) -> DecidedSnapshot:
    """The snapshot and decisions that the arguments name; bad ones end the program."""
    from kai_cp.decisions import with_groups
    from kai_cp.files import within

    if snapshot == "-" and decisions == Path("-"):
        fail("only one of snapshot and decisions can come from standard input", WRONG_USAGE)
    settings = settings_or_exit(config, {"solver.budget_seconds": budget}, defaults=OFFLINE)
    instant = instant_or_exit(now)
    shares = usage_or_exit(usage)
    snapshot = file_or_exit(snapshot, settings)
    document: Mapping[str, Any] = {}
    plan, given = None, None
    if not undecided:
        document, plan, given = _plan(snapshot, decisions, settings, instant, shares)
    read_at = instant if instant is not None else instant_or_exit(document.get("now"))
    found, name, digest = snapshot_or_exit(snapshot, read_at, settings, shares)
    told_if_of_another(decisions, document, name, digest)
    broken: tuple[str, ...] = ()
    if plan is not None:
        plan = with_groups(plan, {pod.key: pod.group for pod in found.pods})
        if given is not None and document.get("selected"):
            complain(f"{given}: {PART}; whether the answer breaks a rule is not known")
        elif given is not None:
            with within(settings.limits.read_seconds, name):
                broken = _broken(given, found, plan, settings)
    tells = undecided or "unscheduled" in document
    return DecidedSnapshot(name, digest, found, plan, settings, tells, broken)


def _broken(label: str, snapshot: Snapshot, plan: Plan, settings: Settings) -> tuple[str, ...]:
    """The rules that a plan breaks, of which the user is warned."""
    from kai_cp_models.queries.cluster import faults
    from kai_cp_models.shown import plural

    found = list(dict.fromkeys(map(str, faults(snapshot, plan, settings))))
    if not found:
        return ()
    complain(f"{label}: the decisions break {plural(len(found), 'rule')}, see `kai-cp check`: {found[0]}")
    more = len(found) - MOST_NAMED
    return (*found[:MOST_NAMED], *((f"and {more} more",) if more > 0 else ()))


def told_if_of_another(
    decisions: Path | None, document: Mapping[str, Any], snapshot: str, digest: str
) -> None:
    """Warn if decisions were made for another snapshot than the one of this name and SHA-256."""
    from kai_cp.reader.container import label_of

    made_for = str(document.get("snapshotSha256") or digest)
    if made_for != digest:
        of = label_of(decisions) if decisions is not None else snapshot
        complain(
            f"{of}: the decisions are for another snapshot (hash {made_for[:12]}; that of {snapshot} is "
            f"{digest[:12]})"
        )


def decisions_or_exit(source: Path | bytes) -> tuple[Mapping[str, Any], Plan]:
    """A ``decisions/1`` document, which may be packed, and the plan in it."""
    from kai_cp.decisions import RECORD, BadDecisions, from_json
    from kai_cp.reader.container import OtherContent, UnreadableSnapshot, label_of, load_document

    try:
        document = load_document(source, RECORD)
        return document, from_json(document)
    except OtherContent as problem:
        fail(f"{problem}; name the file with the decisions", BAD_INPUT)
    except UnreadableSnapshot as problem:
        fail(str(problem), BAD_INPUT)
    except BadDecisions as error:
        fail(f"{label_of(source)}: {error}", BAD_INPUT)


def _plan(
    snapshot: str,
    decisions: Path | None,
    settings: Settings,
    instant: float | None,
    usage: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any], Plan, str | None]:
    """The document of the arguments, the plan in it, and its name; no name if it was decided now."""
    from kai_cp.decisions import BadDecisions, recorded
    from kai_cp.files import within
    from kai_cp.reader.container import label_of

    given: Path | bytes = decisions or Path(snapshot)
    try:
        with within(settings.limits.read_seconds, snapshot):
            if decisions is None:
                recorded(snapshot)
    except OSError as error:
        fail(f"{snapshot}: {error.strerror or error}", BAD_INPUT)
    except BadDecisions:
        given = _decided(snapshot, settings, instant, usage)  # a snapshot without decisions
    with within(settings.limits.read_seconds, decisions or snapshot):
        return *decisions_or_exit(given), None if isinstance(given, bytes) else label_of(given)


def _decided(
    snapshot: str, settings: Settings, instant: float | None, usage: Mapping[str, Any] | None
) -> bytes:
    """The engine's decisions on the snapshot, as ``decisions/1``."""
    from kai_cp.worker import ENGINE, Worker, warm_up

    warm_up(ENGINE)
    from kai_cp.solving import SolvingTask, job, solve

    with Worker(job, decides_once=True) as worker:
        result = solve(worker, SolvingTask(source_or_exit(snapshot), None, instant, settings, usage))
    if result.problem:
        complain(result.problem)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.document is None:
        raise typer.Exit(BAD_INPUT)
    return result.document
