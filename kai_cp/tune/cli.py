"""``kai-cp tune``: settings side by side on snapshots, or a search for better ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def tune(
    snapshots: Annotated[
        list[str],
        typer.Argument(metavar="SNAPSHOT…", help="KAI snapshots: .zip, .json, .json.gz or a directory."),
    ],
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Settings file; give it several times to compare. With --search: the base."),
    ] = None,
    search: Annotated[
        Path | None, typer.Option(help="Search space (YAML): parameters and objectives.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Finished trials the study shall have.")] = 50,
    storage: Annotated[
        str,
        typer.Option(help="Optuna storage URL; a PostgreSQL URL lets many workers share one study."),
    ] = "sqlite:///kai-cp-tune.db",
    out: Annotated[Path, typer.Option(help="--search: write the chosen settings here.")] = Path("tuned.yaml"),
    now: Annotated[
        str | None,
        typer.Option(
            metavar="RFC3339", help="Read the snapshots as of this time; default: when each was taken."
        ),
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time for one decision.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the comparison as one HTML page.")] = None,
) -> None:
    """Compare settings on the same snapshots, or search the preferences.

    Only preferences can be tuned; contract rules are no settings. Every plan is audited by the checker.
    Exit status: 0 done, 1 a bad input or a wrong answer, 2 wrong usage.
    """
    from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, fail, instant_or_exit, settings_or_exit

    paths = config or []
    if search is None and len(paths) < 2:
        fail("give --config at least twice to compare, or --search", WRONG_USAGE)
    if search is not None and len(paths) > 1:
        fail("--search takes one --config at most: the base", WRONG_USAGE)
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    every = {
        name: settings_or_exit(path, {"solver.budget_seconds": budget})
        for name, path in zip(names, paths, strict=True)
    }
    base = next(iter(every.values()), None) or settings_or_exit(None, {"solver.budget_seconds": budget})
    parsed, digests = _read(snapshots, instant_or_exit(now), base)
    if search is None:
        _compare(parsed, every, report)
        return
    from kai_cp.tune.search import WrongAnswer

    try:
        chosen = _search(search, base, parsed, digests, trials, storage, out)
    except WrongAnswer as error:
        fail(f"a plan broke a rule: {error}", BAD_INPUT)
    except ValueError as error:
        fail(str(error), WRONG_USAGE)
    if report is not None:
        _compare(parsed, {"base": base, out.name: chosen}, report)


def _read(
    arguments: list[str], now: float | None, settings: Settings
) -> tuple[dict[str, Snapshot], dict[str, str]]:
    from kai_cp.cli.common import BAD_INPUT, fail
    from kai_cp.reader import UnreadableSnapshot
    from kai_cp.reading import inputs, read

    sources, problems = inputs(arguments)
    if problems:
        fail("; ".join(problems), BAD_INPUT)
    parsed: dict[str, Snapshot] = {}
    digests: dict[str, str] = {}
    for source in sources:
        try:
            parsed[source.name], digests[source.name] = read(source.path, now=now, settings=settings)
        except UnreadableSnapshot as error:
            fail(str(error), BAD_INPUT)
    return parsed, digests


def _compare(parsed: dict[str, Snapshot], every: dict[str, Settings], report: Path | None) -> None:
    from rich.console import Console

    from kai_cp.bench.progress import Bar
    from kai_cp.cli.common import BAD_INPUT, complain
    from kai_cp.tune.compare import html, table
    from kai_cp.tune.measure import Measured, measure

    results: dict[str, dict[str, Measured]] = {}
    wrong: list[str] = []
    with Bar() as bar:
        bar.expect(len(parsed) * len(every))
        for name, snapshot in parsed.items():
            results[name] = {}
            for config, settings in every.items():
                bar.begin(f"{name}, {config}")
                results[name][config] = measure(snapshot, settings)
                wrong += [f"{name}, {config}: {line}" for line in results[name][config].errors]
    Console().print(table(results, list(every)))
    if report is not None:
        documents = {config: settings.model_dump() for config, settings in every.items()}
        report.write_text(html(results, list(every), documents), encoding="utf-8")
    for line in wrong:
        complain(line)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def _search(
    path: Path,
    base: Settings,
    parsed: dict[str, Snapshot],
    digests: dict[str, str],
    trials: int,
    storage: str,
    out: Path,
) -> Settings:
    from rich.console import Console
    from rich.table import Table

    from kai_cp.bench.progress import Bar
    from kai_cp.settings import as_yaml
    from kai_cp.tune.search import search, study_name, with_overrides
    from kai_cp.tune.space import read_space

    space = read_space(path)
    with Bar() as bar:
        bar.expect(trials)
        front = search(
            space,
            base,
            list(parsed.values()),
            trials=trials,
            storage=storage,
            name=study_name(space, base, digests),
            report=lambda done: bar.begin(f"trial {done + 1}"),
        )
    # Objectives in the order of the file: the first counts most.
    best = min(front, key=lambda f: tuple(_rank(name, f.values[name]) for name in space.objectives))
    shown = Table(title="Pareto front; * is written")
    for column in ("trial", *space.objectives, *space.parameters):
        shown.add_column(column, justify="right")
    for found in sorted(front, key=lambda f: tuple(_rank(name, f.values[name]) for name in space.objectives)):
        cells = [f"{found.values[name]:.2f}" for name in space.objectives]
        cells += [f"{found.overrides[name]}" for name in space.parameters]
        shown.add_row(f"{found.number}{'*' if found is best else ''}", *cells)
    Console().print(shown)
    chosen = with_overrides(base, best.overrides)
    out.write_text(as_yaml(chosen), encoding="utf-8")
    return chosen


def _rank(name: str, value: float) -> float:
    from kai_cp.tune.measure import MEASURES

    return round(-value if MEASURES[name].more else value, 3)
