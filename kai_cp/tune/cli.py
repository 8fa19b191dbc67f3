"""``kai-cp tune``: settings side by side on snapshots, or a search for better ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.options import INPUT, SEARCH, SHOWN, NowOption

if TYPE_CHECKING:
    from kai_cp.tune.search import Instance
    from kai_cp_models.settings import Settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def tune(
    snapshots: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SNAPSHOT...]",
            help="KAI snapshots: .zip, .json, .json.gz, a directory of them, or - for standard input.",
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Settings file; give several to compare. With --search: the present settings.",
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
        int, typer.Option(min=1, help="Finished trials after which the study ends.", rich_help_panel=SEARCH)
    ] = 50,
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the study is stored; with postgresql://… many workers share it.",
            rich_help_panel=SEARCH,
        ),
    ] = "sqlite:///kai-cp-tune.db",
    *,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="--search: write the chosen settings here.", rich_help_panel=SHOWN),
    ] = Path("tuned.yaml"),
    days: Annotated[
        str | None,
        typer.Option(
            metavar="SEEDS",
            help="Simulate days of these seeds (1-3; 1,5) instead of reading snapshots: gangs with declared "
            "run times among small jobs, as `kai-cp bench --suite gangs` has them.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    hours: Annotated[
        float, typer.Option(min=0.1, help="--days: hours of each.", rich_help_panel=INPUT)
    ] = 24.0,
    nodes: Annotated[int, typer.Option(min=4, help="--days: nodes of 8 GPUs.", rich_help_panel=INPUT)] = 16,
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

    Only preferences can be tuned; contract rules are not settings. Every plan is audited by the checker.

    Exit status: 0 done, 1 a bad input or a wrong answer, 2 wrong usage.

    Examples:
    kai-cp tune snapshots/ --config present.yaml --config candidate.yaml
    kai-cp tune snapshots/ --search space.yaml --trials 100 --out tuned.yaml
    kai-cp tune --days 1-3 --config present.yaml --config candidate.yaml
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
    if bool(snapshots) == bool(days):
        fail("give snapshots, or --days", WRONG_USAGE)
    if days:
        instances, digests = _days(days, hours, nodes)
    else:
        instances, digests = _read(snapshots or [], instant_or_exit(now), base)
    if search is None:
        _compare(instances, every, report)
        return
    from kai_cp.tune.search import WrongAnswer

    try:
        chosen = _search(search, base, instances, digests, trials, storage=storage, out=out)
    except WrongAnswer as error:
        fail(f"a plan broke a rule: {error}", BAD_INPUT)
    except ValueError as error:
        fail(str(error), WRONG_USAGE)
    if report is not None:
        _compare(instances, {"base": base, out.name: chosen}, report)


def _days(text: str, hours: float, nodes: int) -> tuple[dict[str, Instance], dict[str, str]]:
    """Simulated days by name, with the digest of each."""
    from kai_cp.bench.cli import numbers
    from kai_cp.simulate.starts import declared
    from kai_cp.tune.days import measure_day

    seeds = numbers("--days", text)
    days = {f"day {seed}": declared(seed, nodes=nodes, hours=hours) for seed in seeds}
    return (
        {name: partial(measure_day, workload) for name, workload in days.items()},
        {name: f"{name}, {hours:g} h, {nodes} nodes" for name in days},
    )


def _read(
    arguments: list[str], now: float | None, settings: Settings
) -> tuple[dict[str, Instance], dict[str, str]]:
    """The snapshots by name, and their digests with the time as of which each is read."""
    from kai_cp.cli.common import BAD_INPUT, fail
    from kai_cp.files import within
    from kai_cp.instants import rfc3339
    from kai_cp.reader import UnreadableSnapshot
    from kai_cp.reading import inputs, read
    from kai_cp.tune.measure import measure

    sources, problems = inputs(arguments)
    if problems:
        fail("; ".join(problems), BAD_INPUT)
    found: dict[str, Instance] = {}
    digests: dict[str, str] = {}
    for source in sources:
        try:
            with within(settings.limits.read_seconds, source.path):
                snapshot, digest = read(source.path, now=now, settings=settings)
            digests[source.name] = f"{digest} at {rfc3339(snapshot.now)}"
            found[source.name] = partial(measure, snapshot)
        except UnreadableSnapshot as error:
            fail(str(error), BAD_INPUT)
    return found, digests


def _compare(instances: dict[str, Instance], every: dict[str, Settings], report: Path | None) -> None:
    from kai_cp.bench.progress import ProgressBar
    from kai_cp.cli.common import BAD_INPUT, complain
    from kai_cp.report.terminal import show
    from kai_cp.tune.compare import html, table
    from kai_cp.tune.measure import Measured

    results: dict[str, dict[str, Measured]] = {}
    wrong: list[str] = []
    with ProgressBar() as bar:
        bar.expect(len(instances) * len(every))
        for name, measured in instances.items():
            results[name] = {}
            for config, settings in every.items():
                bar.begin(f"{name}, {config}")
                results[name][config] = measured(settings)
                wrong += [f"{name}, {config}: {line}" for line in results[name][config].errors]
    show(table(results, list(every)).render(wider="a pipe shows them"))
    if report is not None:
        documents = {config: settings.model_dump() for config, settings in every.items()}
        report.write_text(html(results, list(every), documents), encoding="utf-8")
        typer.echo(f"{report}: open it in a browser")
    for line in wrong:
        complain(line)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def _search(
    path: Path,
    base: Settings,
    instances: dict[str, Instance],
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
        present = spread(space, base, list(instances.values()))
        found = search(
            space,
            base,
            list(instances.values()),
            trials=trials,
            storage=storage,
            name=study_name(space, base, digests),
            report=lambda done: bar.begin(f"trial {done + 1}"),
        )
    choice = choose(space, present, found)
    show(table(space, choice).render(wider="a pipe shows them"))
    show(choice.sentence(str(out)))
    show(knobs(space, base))
    chosen = base if choice.best is None else with_overrides(base, choice.best.overrides)
    out.write_text(as_yaml(chosen), encoding="utf-8")
    return chosen
