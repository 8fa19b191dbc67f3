"""``kai-cp pending``, ``queues``, ``evictions``, ``audit``, ``plan``: a question each, one body for all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, fail, selected_or_exit
from kai_cp.cli.options import (
    SHOWN,
    AllOption,
    BudgetOption,
    ConfigOption,
    FormatOption,
    GroupOption,
    NamespaceOption,
    NowOption,
    QueueOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.output import CommandResult, OutputFormat, answer, of_rows
from kai_cp.cli.world import DecisionsArgument, world_or_exit

if TYPE_CHECKING:
    from kai_cp.cli.world import DecidedSnapshot
    from kai_cp.questions.question import SnapshotDetails, SnapshotQuestion

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Parameter = inspect.Parameter
_GIVEN: Final = (
    Parameter("snapshot", Parameter.KEYWORD_ONLY, annotation=SnapshotArgument),
    Parameter("decisions", Parameter.KEYWORD_ONLY, annotation=DecisionsArgument, default=None),
    Parameter("format", Parameter.KEYWORD_ONLY, annotation=FormatOption, default=OutputFormat.TABLE),
    Parameter("now", Parameter.KEYWORD_ONLY, annotation=NowOption, default=None),
    Parameter("usage", Parameter.KEYWORD_ONLY, annotation=UsageOption, default=None),
    Parameter("budget", Parameter.KEYWORD_ONLY, annotation=BudgetOption, default=None),
    Parameter("config", Parameter.KEYWORD_ONLY, annotation=ConfigOption, default=None),
    Parameter("everything", Parameter.KEYWORD_ONLY, annotation=AllOption, default=False),
)
_SELECTED: Final = {
    "queue": Parameter("queue", Parameter.KEYWORD_ONLY, annotation=QueueOption, default=None),
    "namespace": Parameter("namespace", Parameter.KEYWORD_ONLY, annotation=NamespaceOption, default=None),
    "group": Parameter("group", Parameter.KEYWORD_ONLY, annotation=GroupOption, default=None),
}
"""The options that narrow an answer."""
_WHY: Final = Parameter(
    "why",
    Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        str | None,
        typer.Option(
            "--why",
            metavar="NAME",
            help="Why this queue has what it has, and its peers more.",
            rich_help_panel=SHOWN,
        ),
    ],
    default=None,
)
_ABOUT_WAITING: Final = ("pending", "queues", "audit")
"""Questions that need to know what stays pending."""
Answered = Callable[["SnapshotDetails", bool], CommandResult]
"""The result of the facts; True: long tables in full."""


def _asked(name: str, selects: Sequence[str], help: str, answered: Answered) -> None:
    """Make a command of a question."""

    def command(**given: Any) -> None:
        world = world_or_exit(
            given["snapshot"],
            given["decisions"],
            now=given["now"],
            budget=given["budget"],
            config=given["config"],
            usage=given["usage"],
        )
        if name in _ABOUT_WAITING and not world.tells_what_waits:
            fail(
                f"{given['decisions']}: these decisions do not tell what stays pending; without them "
                f"`kai-cp {name}` decides itself",
                BAD_INPUT,
            )
        facts = _selected(world, *(given.get(option) for option in _SELECTED))
        if given.get("why") is not None:
            answer(_why(facts, given["why"], given["everything"]), given["format"])
            return
        answer(answered(facts, given["everything"]), given["format"])

    options = _SELECTED | {"why": _WHY}
    parameters = [*_GIVEN[:3], *(options[option] for option in selects), *_GIVEN[3:]]
    command.__doc__ = help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name)(command)


def _selected(
    world: DecidedSnapshot, queue: list[str] | None, namespace: list[str] | None, group: list[str] | None
) -> SnapshotDetails:
    """The facts that were asked for."""
    from dataclasses import replace

    from kai_cp.report.inspect import selected
    from kai_cp.report.select import Selection, keys_of, names

    selection, facts = Selection(names(queue), names(namespace), names(group)), world.facts()
    selected_or_exit(selection, facts.decisions, facts.name, lambda: keys_of(world.snapshot))
    return replace(
        facts, decisions=selection.of(facts.decisions), inspection=selected(facts.inspection, selection)
    )


def _question(module: str) -> Answered:
    """The result of ``kai_cp.questions.MODULE``."""

    def answered(facts: SnapshotDetails, everything: bool) -> CommandResult:
        from importlib import import_module

        question: SnapshotQuestion = getattr(import_module(f"kai_cp.questions.{module}"), module.upper())
        return _result(question, facts, everything)

    return answered


def _result(question: SnapshotQuestion, facts: SnapshotDetails, everything: bool) -> CommandResult:
    document = question.ask(facts)
    rows = document[question.rows]
    return of_rows(
        document,
        rows,
        tuple(dict.fromkeys((*question.columns, *(key for row in rows for key in row)))),
        question.label,
        lambda wide: _show(question, document, facts, everything=everything, wide=wide),
    )


def _why(facts: SnapshotDetails, name: str, everything: bool) -> CommandResult:
    """The result of ``queues --why``; an unknown queue ends the program."""
    from kai_cp.explain.draft import nearest
    from kai_cp.questions.why import why

    known = [queue["name"] for queue in facts.inspection["queues"]]
    if name not in known:
        fail(f"--why: {facts.name} has no queue {name}{nearest(name, known)}", WRONG_USAGE)
    return _result(why(name), facts, everything)


def _show(
    question: SnapshotQuestion,
    document: dict[str, Any],
    facts: SnapshotDetails,
    *,
    everything: bool,
    wide: bool,
) -> None:
    """The answer in words and tables."""
    from kai_cp.report.decisions import shortening
    from kai_cp.report.headline import as_of, part_of
    from kai_cp.report.page import show_page

    show_page(
        f"{facts.name}{part_of(facts.decisions)}: {question.headline(document)}",
        as_of(facts.decisions),
        question.sections(document),
        everything=everything,
        wide=wide,
        shorten=shortening(facts.decisions),
    )


def _plan(facts: SnapshotDetails, everything: bool) -> CommandResult:
    from kai_cp.report.decisions import report
    from kai_cp.report.rows import COLUMNS, names, rows
    from kai_cp.report.terminal import show

    return CommandResult(
        [facts.decisions],
        names=lambda: names(facts.decisions),
        table=lambda: (COLUMNS, rows(facts.name, facts.decisions)),
        show=lambda wide: show(report(facts.name, facts.decisions, everything=everything), wide=wide),
    )


_asked(
    "pending",
    ("queue", "namespace", "group"),
    """Show the pod groups that wait, in fair order, each with its reason.

    Exit status: 0 shown, 1 the snapshot or its decisions are bad, 2 wrong usage, or no such
    queue or pod group.

    Examples:
    kai-cp pending snapshot.zip
    kai-cp pending cycle.zip --queue team-a -o name
    """,
    _question("pending"),
)
_asked(
    "queues",
    ("queue", "why"),
    """Show the queues: quota, fair share, use, what is borrowed and what is owed, in GPUs.

    Use and what is borrowed (above the quota) are as of the snapshot, what is owed is after the plan.

    Exit status: 0 shown, 1 the snapshot or its decisions are bad, 2 wrong usage, or no such
    queue.

    Examples:
    kai-cp queues snapshot.zip
    kai-cp queues snapshot.zip --why team-a
    kai-cp queues snapshot.zip --queue research -o json
    """,
    _question("queues"),
)
_asked(
    "evictions",
    ("queue", "namespace", "group"),
    """Show the pods that are evicted, for which pod group, and whether they get another place.

    Exit status: 0 shown, 1 the snapshot or its decisions are bad, 2 wrong usage, or no such
    queue or pod group.

    Examples:
    kai-cp evictions cycle.zip
    kai-cp evictions snapshot.zip --queue team-a
    """,
    _question("evictions"),
)
_asked(
    "audit",
    (),
    """Show which queues are owed after the plan, queues above their fair share, and idle quota.

    Exit status: 0 shown, 1 the snapshot or its decisions are bad, 2 wrong usage.

    Examples:
    kai-cp audit snapshot.zip
    """,
    _question("audit"),
)
_asked(
    "plan",
    ("queue", "namespace", "group"),
    """Show the whole plan of the next cycle; nothing is changed.

    Exit status: 0 shown, 1 the snapshot or its decisions are bad, 2 wrong usage, or no such
    queue or pod group.

    Examples:
    kai-cp plan cycle.zip
    kai-cp plan snapshot.zip --namespace team-a
    """,
    _plan,
)
