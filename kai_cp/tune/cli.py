"""``kai-cp tune``: settings side by side on snapshots, or a search for better ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.options import INPUT, SEARCH, SHOWN, NowOption, SnapshotsArgument

if TYPE_CHECKING:
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def tune(
    snapshots: SnapshotsArgument,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Settings; give it several times to compare. With --search: the present ones.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What may vary, and what counts (YAML; see docs/tuning.md).",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Finished trials the study shall have.", rich_help_panel=SEARCH)
    ] = 50,
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the study lives; with postgresql://… many workers share one.",
            rich_help_panel=SEARCH,
        ),
    ] = "sqlite:///kai-cp-tune.db",
    *,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="--search: write the chosen settings here.", rich_help_panel=SHOWN),
    ] = Path("tuned.yaml"),
    now: NowOption = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Most time for one decision. Default: solver.budget_seconds.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the comparison as one HTML page.", rich_help_panel=SHOWN),
    ] = None,
) -> None:
    """Compare settings on the same snapshots, or search better ones.

    Only preferences can be tuned; contract rules are no settings. Every plan is audited by the checker.

    Exit status: 0 done, 1 a bad input or a wrong answer, 2 wrong usage.

    Examples:
    kai-cp tune snapshots/ --config present.yaml --config candidate.yaml
    kai-cp tune snapshots/ --search space.yaml --trials 100 --out tuned.yaml
    """
    from kai_cp.cli.common import (
        BAD_INPUT,
        WRONG_USAGE,
        fail,
        instant_or_exit,
        settings_or_exit,
        writable_or_exit,
    )

    paths = config or []
    if search is None and len(paths) < 2:
        fail("give --config at least twice to compare, or --search", WRONG_USAGE)
    if search is not None and len(paths) > 1:
        fail("--search takes one --config at most: the base", WRONG_USAGE)
    writable_or_exit("--report", report)
    if search is not None:
        writable_or_exit("--out", out)
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
        chosen = _search(search, base, parsed, digests, trials, storage=storage, out=out)
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
    from kai_cp.bench.progress import ProgressBar
    from kai_cp.cli.common import BAD_INPUT, complain
    from kai_cp.report.terminal import show
    from kai_cp.tune.compare import html, table
    from kai_cp.tune.measure import Measured, measure

    results: dict[str, dict[str, Measured]] = {}
    wrong: list[str] = []
    with ProgressBar() as bar:
        bar.expect(len(parsed) * len(every))
        for name, snapshot in parsed.items():
            results[name] = {}
            for config, settings in every.items():
                bar.begin(f"{name}, {config}")
                results[name][config] = measure(snapshot, settings)
                wrong += [f"{name}, {config}: {line}" for line in results[name][config].errors]
    show(table(results, list(every)).render(None))
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
    *,
    storage: str,
    out: Path,
) -> Settings:
    from kai_cp.bench.progress import ProgressBar
    from kai_cp.report.terminal import show
    from kai_cp.settings import as_yaml
    from kai_cp.tune.outcome import choose, knobs, table
    from kai_cp.tune.search import search, spread, study_name, with_overrides
    from kai_cp.tune.space import read_space

    space = read_space(path)
    with ProgressBar() as bar:
        bar.expect(trials + 1)
        bar.begin("the present settings, several times")
        present = spread(space, base, list(parsed.values()))
        found = search(
            space,
            base,
            list(parsed.values()),
            trials=trials,
            storage=storage,
            name=study_name(space, base, digests),
            report=lambda done: bar.begin(f"trial {done + 1}"),
        )
    choice = choose(space, present, found)
    show(table(space, choice).render(None))
    show(choice.sentence(str(out)))
    show(knobs(space))
    chosen = base if choice.best is None else with_overrides(base, choice.best.overrides)
    out.write_text(as_yaml(chosen), encoding="utf-8")
    return chosen
