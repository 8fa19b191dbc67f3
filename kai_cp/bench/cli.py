"""``kai-cp bench``: run suites, write JSON lines, draw the report; ``merge`` puts results together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from kai_cp.cli.help import HelpfulGroup
from kai_cp.cli.options import INPUT, SHOWN, ConfigOption, PartOption

if TYPE_CHECKING:
    from kai_cp.bench.records import Result

app = typer.Typer(cls=HelpfulGroup, add_completion=False, pretty_exceptions_enable=False)

_SUITES: Final = "What is run"

ReportOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write one self-contained HTML page.", rich_help_panel=SHOWN),
]


class Suite(StrEnum):
    """What can be measured."""

    KAI = "kai"
    SCALE = "scale"
    OPENB = "openb"
    GANGS = "gangs"
    MATTERS = "matters"
    SMOKE = "smoke"


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    suite: Annotated[
        list[Suite] | None,
        typer.Option(
            help="Suite to run; may be given again. smoke: half a minute of everything; scale and matters: "
            "generated clusters; gangs: simulated days, also with reservations; kai: recorded clusters "
            "beside KAI; openb: a production trace.",
            rich_help_panel=_SUITES,
        ),
    ] = None,
    shapes: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Shapes; openb: pod lists; gangs: philly or declared. Default: all.",
            rich_help_panel=_SUITES,
        ),
    ] = "",
    nodes: Annotated[
        str, typer.Option(metavar="N,...", help="Sizes, such as 100,1000.", rich_help_panel=_SUITES)
    ] = "",
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="Seeds, also as A-B. Default: per suite.", rich_help_panel=_SUITES
        ),
    ] = "",
    *,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Most time for one decision.", rich_help_panel=_SUITES)
    ] = 1.0,
    second_cycle: Annotated[
        bool,
        typer.Option(
            "--second-cycle",
            help="kai, scale: decide again after a change of one percent.",
            rich_help_panel=_SUITES,
        ),
    ] = False,
    bound_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="openb: time for the offline bound of one list; 0: none.",
            rich_help_panel=_SUITES,
        ),
    ] = 60.0,
    hours: Annotated[float, typer.Option(help="gangs: simulated time.", rich_help_panel=_SUITES)] = 48.0,
    part: PartOption = None,
    processes: Annotated[
        int, typer.Option(min=1, help="openb: runs at a time.", rich_help_panel=_SUITES)
    ] = 2,
    config: ConfigOption = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Compare with the decisions in this directory; kai: KAI's recorded ones.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    shared: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Directory with bench/ (suite kai) and data/openb/ (suite openb).",
            rich_help_panel=INPUT,
        ),
    ] = Path("../shared"),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append the results to this file of JSON lines.", rich_help_panel=SHOWN
        ),
    ] = None,
    report: ReportOption = None,
) -> None:
    """Measure decisions and their quality. Every answer is audited by the checker.

    Exit status: 0 measured, 1 a wrong or missing answer, 2 wrong usage, 3 the data of a suite is not there.

    Examples:
    kai-cp bench --suite smoke
    kai-cp bench --suite scale --nodes 100,1000 --out found.jsonl
    kai-cp bench merge part-*.jsonl --report all.html
    """
    if context.invoked_subcommand is not None:
        return
    from kai_cp.bench.peers import UnreadableAnswers
    from kai_cp.bench.progress import ProgressBar
    from kai_cp.bench.run import RunPlan, run_suites
    from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, fail, part_or_exit, settings_or_exit

    if not suite:
        fail("--suite: name one of " + ", ".join(Suite), WRONG_USAGE)
    settings = settings_or_exit(config, {"solver.budget_seconds": budget})
    _writable(out, report)
    plan = RunPlan(
        suites=tuple(s.value for s in suite),
        shapes=_shapes(shapes, suite),
        nodes=numbers("--nodes", nodes),
        seeds=numbers("--seeds", seeds),
        against=against,
        shared=shared,
        second_cycle=second_cycle,
        bound_seconds=bound_seconds,
        hours=hours,
        processes=processes,
        part=part_or_exit(part),
    )
    results: list[Result] = []
    problems: list[str] = []
    try:
        with ProgressBar() as bar:
            for item in run_suites(plan, settings, bar):
                if isinstance(item, str):
                    problems.append(item)
                    continue
                results.append(item)
                problems.extend(f"{item.case}: {line}" for line in getattr(item, "errors", ()))
                if out is not None:
                    from kai_cp.bench.records import write

                    write(out, [item])
    except UnreadableAnswers as problem:
        fail(str(problem), BAD_INPUT)
    if not results and not problems:
        fail("--suite, --shapes, --nodes and --part together select no case", WRONG_USAGE)
    _show(results, report)
    _end(problems)


@app.command()
def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Results as --out writes them, in any order.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all of them to this file.", rich_help_panel=SHOWN),
    ] = None,
    report: ReportOption = None,
) -> None:
    """Put results of several machines together.

    A result that occurs twice counts once.

    Exit status: 0 merged, 1 a file cannot be read or holds something else, 2 wrong usage.

    Examples:
    kai-cp bench merge results/*.jsonl --out all.jsonl --report all.html
    """
    from pydantic import ValidationError

    from kai_cp.bench.records import read, write
    from kai_cp.cli.common import BAD_INPUT, fail

    _writable(out, report)
    found: dict[str, Result] = {}
    for path in files:
        try:
            found |= {result.model_dump_json(): result for result in read(path)}
        except OSError as error:
            fail(f"{path}: {error.strerror or error}", BAD_INPUT)
        except ValidationError:
            fail(f"{path}: it has lines that are no results of this version of `kai-cp bench`", BAD_INPUT)
    if not found:
        fail(
            f"{', '.join(map(str, files))}: there is no result; was the run ended before its first one?",
            BAD_INPUT,
        )
    results = sorted(found.values(), key=lambda result: (result.kind, result.case))
    if out is not None:
        out.write_text("", "utf-8")
        write(out, results)
    _show(results, report)
    origins = {(result.origin.machine, result.origin.commit) for result in results}
    if len(origins) > 1:
        from kai_cp.cli.common import complain

        complain(f"the results are from {len(origins)} different machines or versions; times do not compare")


def _show(results: Sequence[Result], report: Path | None) -> None:
    from kai_cp.bench.table import tables
    from kai_cp.report.terminal import show

    if report is not None:
        from kai_cp.bench.report import page

        report.write_text(page(results), encoding="utf-8")
    for section in tables(results):
        show(section.render(wider="a pipe shows them"))
    if report is not None:
        typer.echo(f"{report}: open it in a browser")


def _writable(*paths: Path | None) -> None:
    """Check that the results can be written before a long run begins."""
    from kai_cp.cli.common import writable_or_exit

    for option, path in zip(("--out", "--report"), paths, strict=True):
        writable_or_exit(option, path)


def _end(problems: Sequence[str]) -> None:
    from kai_cp.cli.common import BAD_INPUT, complain

    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(BAD_INPUT)


def _wrong(text: str) -> NoReturn:
    from kai_cp.cli.common import WRONG_USAGE, fail

    fail(text, WRONG_USAGE)


def _shapes(text: str, suites: Sequence[Suite]) -> tuple[str, ...]:
    """The requested shapes; those that suites generate must exist."""
    from kai_cp.bench.generate import SHAPES
    from kai_cp.simulate.suite import WORKLOADS

    asked = tuple(part.strip() for part in text.split(",") if part.strip())
    made = {Suite.SCALE: (*SHAPES,), Suite.SMOKE: (*SHAPES,), Suite.GANGS: WORKLOADS}
    # Recorded clusters and traces are known once their directory is read.
    if all(suite in made for suite in suites):
        known = list(dict.fromkeys(name for suite in suites for name in made[suite]))
        for name in asked:
            if name not in known:
                _wrong(f"--shapes {name}: there is no such shape; there are {', '.join(known)}")
    return asked


def numbers(option: str, text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            _wrong(f"{option} {text}: {part!r} is not a whole number, nor a range such as 1-5")
        if dash and int(last) < int(first):
            _wrong(f"{option} {text}: {part!r} ends before it begins")
        found.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    return tuple(found)
