"""``kai-cp pending``, ``queues``, ``evictions``, ``audit`` and ``plan``: one question each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_cp.cli.common import complain
from kai_cp.cli.options import (
    SHOWN,
    AllOption,
    BudgetOption,
    ConfigOption,
    GroupOption,
    NamespaceOption,
    NowOption,
    QueueOption,
    SnapshotArgument,
)
from kai_cp.cli.output import Format, as_csv, as_json, as_yaml, write
from kai_cp.cli.world import DecisionsArgument, World, world_or_exit

if TYPE_CHECKING:
    from kai_cp.questions.question import Facts, Question

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        "-o",
        help="Tables (wide: all columns, one row a line), the document, names, or a row each.",
        rich_help_panel=SHOWN,
    ),
]


def answer(question: Question, facts: Facts, format: Format, *, everything: bool) -> None:
    """Print the answer to a question."""
    from rich.text import Text

    from kai_cp.report.decisions import shortening
    from kai_cp.report.headline import as_of
    from kai_cp.report.section import ROWS_SHOWN, Shortening
    from kai_cp.report.terminal import is_whole, stdout

    document = question.ask(facts)
    rows = document[question.rows]
    match format:
        case Format.JSON:
            write(as_json([document]))
        case Format.YAML:
            write(as_yaml([document]))
        case Format.NAME:
            write("".join(f"{question.label.format(**row)}\n" for row in rows))
        case Format.CSV:
            columns = tuple(rows[0]) if rows else ()
            write(as_csv(columns, ([_flat(value) for value in row.values()] for row in rows)))
        case _:
            console = stdout(wide=format is Format.WIDE)
            shorten = Shortening() if is_whole(console.width) else shortening(facts.decisions)
            console.print(Text(f"{facts.name}: {question.headline(document)}", style="bold"), crop=False)
            console.print(
                Text(" ".join(filter(None, (as_of(document), shorten.said()))), style="dim"), crop=False
            )
            for section in question.sections(document):
                if section.rows:
                    console.print(section.render(None if everything else ROWS_SHOWN, shorten), crop=False)


def _flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _facts(
    world: World, queue: list[str] | None, namespace: list[str] | None, group: list[str] | None
) -> Facts:
    """The facts that were asked for; a queue that does not exist is named."""
    from dataclasses import replace

    from kai_cp.report.inspect import selected
    from kai_cp.report.select import Selection, names

    facts = world.facts()
    selection = Selection(names(queue), names(namespace), names(group))
    for unknown in selection.unknown(facts.decisions):
        complain(f"--queue {unknown}: {world.name} has no such queue")
    return replace(
        facts, decisions=selection.of(facts.decisions), inspection=selected(facts.inspection, selection)
    )


@app.command()
def pending(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    format: FormatOption = Format.TABLE,
    queue: QueueOption = None,
    namespace: NamespaceOption = None,
    group: GroupOption = None,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show the pod groups that wait, in fair order, each with its reason.

    Examples:
    kai-cp pending snapshot.zip
    kai-cp pending cycle.zip --queue team-a -o name
    """
    from kai_cp.questions.pending import PENDING

    world = world_or_exit(snapshot, decisions, now=now, budget=budget, config=config)
    answer(PENDING, _facts(world, queue, namespace, group), format, everything=everything)


@app.command()
def queues(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    format: FormatOption = Format.TABLE,
    queue: QueueOption = None,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show the queues: quota, fair share, use, what is borrowed and what is owed, in GPUs.

    Examples:
    kai-cp queues snapshot.zip
    kai-cp queues snapshot.zip --queue research -o json
    """
    from kai_cp.questions.queues import QUEUES

    world = world_or_exit(snapshot, decisions, now=now, budget=budget, config=config)
    answer(QUEUES, _facts(world, queue, None, None), format, everything=everything)


@app.command()
def evictions(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    format: FormatOption = Format.TABLE,
    queue: QueueOption = None,
    namespace: NamespaceOption = None,
    group: GroupOption = None,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show the pods that are evicted: for whom, and what becomes of them.

    Examples:
    kai-cp evictions cycle.zip
    kai-cp evictions snapshot.zip --queue team-a
    """
    from kai_cp.questions.evictions import EVICTIONS

    world = world_or_exit(snapshot, decisions, now=now, budget=budget, config=config)
    answer(EVICTIONS, _facts(world, queue, namespace, group), format, everything=everything)


@app.command()
def audit(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    format: FormatOption = Format.TABLE,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show which queues are owed while others borrow, the least that would help, and idle quota.

    Examples:
    kai-cp audit snapshot.zip
    """
    from kai_cp.questions.audit import AUDIT

    world = world_or_exit(snapshot, decisions, now=now, budget=budget, config=config)
    answer(AUDIT, world.facts(), format, everything=everything)


@app.command()
def plan(
    snapshot: SnapshotArgument,
    decisions: DecisionsArgument = None,
    format: FormatOption = Format.TABLE,
    queue: QueueOption = None,
    namespace: NamespaceOption = None,
    group: GroupOption = None,
    now: NowOption = None,
    budget: BudgetOption = None,
    config: ConfigOption = None,
    everything: AllOption = False,
) -> None:
    """Show the whole plan of the next cycle; nothing is changed.

    Examples:
    kai-cp plan cycle.zip
    kai-cp plan snapshot.zip --namespace team-a
    """
    from kai_cp.report.decisions import report
    from kai_cp.report.rows import COLUMNS, names, rows
    from kai_cp.report.terminal import show

    facts = _facts(
        world_or_exit(snapshot, decisions, now=now, budget=budget, config=config), queue, namespace, group
    )
    match format:
        case Format.JSON:
            write(as_json([facts.decisions]))
        case Format.YAML:
            write(as_yaml([facts.decisions]))
        case Format.NAME:
            write("".join(f"{name}\n" for name in names(facts.decisions)))
        case Format.CSV:
            write(as_csv(COLUMNS, rows(facts.name, facts.decisions)))
        case _:
            show(report(facts.name, facts.decisions, everything=everything), wide=format is Format.WIDE)
