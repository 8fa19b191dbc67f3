"""``kai-cp explain``: why a pod group waits, which tried changes would help, and when it starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    OFFLINE,
    WRONG_USAGE,
    fail,
    instant_or_exit,
    loaded_or_exit,
    seconds_or_exit,
    settings_or_exit,
    source_or_exit,
    usage_or_exit,
    warn_if_empty,
)
from kai_cp.cli.help import HelpfulCommand
from kai_cp.cli.options import (
    SEARCH,
    SHOWN,
    ConfigOption,
    FormatOption,
    NowOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.output import OutputFormat, answer, of_rows
from kai_cp.files import STDIN

if TYPE_CHECKING:
    from kai_cp.json_types import Json
    from kai_cp_models.pods import GroupKey
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _OneOrAll(HelpfulCommand):
    """Refuses words without a target before anything is read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing and (ctx.params["target"] is None) != ctx.params["everything"]:
            fail("name one pod group, pod or workload, such as job/team-a/train, or give --all", WRONG_USAGE)
        return rest


@app.command(cls=_OneOrAll)
def explain(
    snapshot: SnapshotArgument,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="A pod group, a pod, or what owns them: [KIND/][NAMESPACE/]NAME, such as job/team-a/train.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Explain all pod groups that wait or are disturbed.", rich_help_panel=SHOWN
        ),
    ] = False,
    kinds: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Look for fixes of these kinds only; `kai-cp config explain explain.fix_order` lists them.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    no_fixes: Annotated[
        bool, typer.Option("--no-fixes", help="Do not look for fixes.", rich_help_panel=SHOWN)
    ] = False,
    *,
    format: FormatOption = OutputFormat.TABLE,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Counted work for the start and the fixes of each pod group; about seconds of an idle core.",
            rich_help_panel=SEARCH,
        ),
    ] = 10.0,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
) -> None:
    """Say why pod groups wait: which rules block them, what would help, and when they start.

    Nothing is changed anywhere. Blocking rules are proved, and every fix was tried: applied to the snapshot,
    which was then decided again.

    Exit status: 0 answered, 1 the snapshot or the pod group cannot be used, 2 wrong usage, or the name is not
    there.

    Examples:
    kai-cp explain snapshot.zip podgroup/team-a/llm-7b
    kai-cp explain snapshot.zip pod/team-a/llm-7b-0 --kinds wait,move
    kai-cp explain snapshot.zip pytorchjob/team-a/llm-7b
    kai-cp explain snapshot.zip --all --no-fixes -o json
    """
    from kai_cp.explain.document import Explainer, document
    from kai_cp.explain.draft import Draft
    from kai_cp.explain.text import as_of, lines

    missing = snapshot != STDIN and not Path(snapshot).exists()
    if missing and target is not None and Path(target).exists():
        fail(f"the snapshot comes first: kai-cp explain {target} {snapshot}", WRONG_USAGE)
    settings = settings_or_exit(config, {}, defaults=OFFLINE)
    seconds_or_exit("--budget", budget)
    wanted = _kinds(kinds, settings.explain.fix_order) if not no_fixes else ()
    began = time.monotonic()
    name, raw, digest, instant = raw_or_exit(snapshot, instant_or_exit(now), settings)
    explainer = Explainer(Draft(raw, instant), settings, usage_or_exit(usage), budget, wanted)
    explainer.timings["read"] = time.monotonic() - began - explainer.timings["decide"]
    keys = (
        explainer.waiting()
        if target is None
        else groups_or_exit(target, explainer.draft.raw, explainer.decided.snapshot)
    )
    entries = explainer.explain_all(keys)
    found = document(explainer, entries, digest)

    def show(_wide: bool) -> None:
        for entry in entries:
            for line in lines(entry):
                typer.echo(line)
            if everything:
                typer.echo()
        if not entries:
            typer.echo("Nothing waits, and this cycle disturbs nothing.")
        for line in as_of(found["now"], name, found.get("cutDuring")):
            typer.echo(line)

    columns = ("podGroup", "queue", "state", "reason", "message")
    answer(of_rows(found, entries, columns, "podgroup/{podGroup}", show), format)


def raw_or_exit(
    argument: str, now: float | None, settings: Settings
) -> tuple[str, dict[str, object], str, float]:
    """The one snapshot that an argument names: name, content, SHA-256, and the time as of which it is
    read.
    """
    from kai_cp.reading import as_of

    source = source_or_exit(argument)
    loaded = loaded_or_exit(source.path, settings)
    objects = loaded.raw.get("rawObjects")
    if isinstance(objects, dict):
        warn_if_empty(source.path, len(objects.get("nodes") or ()), len(objects.get("pods") or ()))
    return source.name, loaded.raw, loaded.sha256, as_of(source.path, loaded.raw) if now is None else now


def _kinds(text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    from kai_cp.explain.draft import nearest

    if text is None:
        return tuple(known)
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for kind in asked:
        if kind not in known:
            fail(f"--kinds: there is no kind {kind}{nearest(kind, list(known))}", WRONG_USAGE)
    return tuple(kind for kind in known if kind in asked)


def groups_or_exit(text: str, raw: Json, snapshot: Snapshot, option: str = "") -> list[GroupKey]:
    """The pod groups that a name means; a name that means none ends the program, with the option."""
    from kai_cp.explain.draft import BadOperation
    from kai_cp.explain.targets import SkippedTarget, asked_groups

    try:
        return asked_groups([text], raw, snapshot)
    except BadOperation as problem:
        said = f"{option}: {problem}" if option else str(problem)
        fail(said, BAD_INPUT if isinstance(problem, SkippedTarget) else WRONG_USAGE)
