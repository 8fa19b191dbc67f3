"""``kai-cp bench``: run suites, write JSON lines, draw the report."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kai_cp.bench.records import Result

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Suite(StrEnum):
    """What can be measured."""

    KAI = "kai"
    SCALE = "scale"
    OPENB = "openb"
    GANGS = "gangs"
    MATTERS = "matters"
    SMOKE = "smoke"


@app.command()
def bench(
    suite: Annotated[
        list[Suite], typer.Option(help="Suite to run; may be given again. smoke: a minute of everything.")
    ],
    shapes: Annotated[
        str, typer.Option(help="Shapes by name, comma-separated; openb: pod lists. Default: all.")
    ] = "",
    nodes: Annotated[str, typer.Option(help="Sizes, comma-separated, such as 100,1000.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated or A-B. Default: per suite.")] = "",
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Time for one decision.")] = 1.0,
    config: Annotated[Path | None, typer.Option(help="Settings file of the engine.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Compare with the decisions of this directory; kai: KAI's recorded ones."),
    ] = None,
    shared: Annotated[
        Path, typer.Option(help="Directory with bench/ and data/openb/ (recorded clusters and traces).")
    ] = Path("../shared"),
    out: Annotated[Path | None, typer.Option(help="Append the results to this file of JSON lines.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page.")] = None,
    second_cycle: Annotated[
        bool, typer.Option("--second-cycle", help="kai, scale: decide again after a change of one percent.")
    ] = False,
    bound_seconds: Annotated[
        float, typer.Option(help="openb: time for the offline bound of one list; 0: none.")
    ] = 60.0,
    hours: Annotated[float, typer.Option(help="gangs: simulated time.")] = 48.0,
    processes: Annotated[int, typer.Option(help="openb: runs at a time.")] = 2,
) -> None:
    """Measure decisions and their quality.

    Every answer is audited by the checker.
    Exit status: 0 measured, 1 a wrong or missing answer, 2 wrong usage.
    """
    from kai_cp.bench.progress import Bar
    from kai_cp.bench.run import Plan, run_suites
    from kai_cp.bench.table import show
    from kai_cp.cli.common import WRONG_USAGE, fail, settings_or_exit

    settings = settings_or_exit(config, {"solver.budget_seconds": budget})
    try:
        plan = Plan(
            suites=tuple(s.value for s in suite),
            shapes=tuple(filter(None, shapes.split(","))),
            nodes=_numbers(nodes),
            seeds=_numbers(seeds),
            against=against,
            shared=shared,
            second_cycle=second_cycle,
            bound_seconds=bound_seconds,
            hours=hours,
            processes=processes,
        )
    except ValueError as error:
        fail(str(error), WRONG_USAGE)
    results: list[Result] = []
    problems: list[str] = []
    try:
        with Bar() as bar:
            for item in run_suites(plan, settings, bar):
                if isinstance(item, str):
                    problems.append(item)
                    continue
                results.append(item)
                problems.extend(f"{item.case}: {line}" for line in getattr(item, "errors", ()))
                if out is not None:
                    from kai_cp.bench.records import write

                    write(out, [item])
    except FileNotFoundError as error:
        fail(f"{error.filename}: not found; --shared names the directory of the data", WRONG_USAGE)
    show(results)
    if report is not None:
        from kai_cp.bench.report import page

        report.write_text(page(results), encoding="utf-8")
    _end(problems)


def _end(problems: Sequence[str]) -> None:
    from kai_cp.cli.common import BAD_INPUT, complain

    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(BAD_INPUT)


def _numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        found.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    return tuple(found)
