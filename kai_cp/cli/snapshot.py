"""``kai-cp snapshot``: reduce a snapshot before it is sent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    WRONG_USAGE,
    complain,
    fail,
    instant_or_exit,
    loaded_or_exit,
    settings_or_exit,
    source_or_exit,
    writable_or_exit,
)
from kai_cp.cli.options import INPUT, SHOWN, ConfigOption, NowOption, SnapshotArgument

if TYPE_CHECKING:
    from kai_cp.questions.reduce import Fact
    from kai_cp_models.plan import Plan
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

BUDGET_SECONDS = 5.0
"""For one decision; a reduction makes hundreds."""


@app.callback()
def snapshot_commands() -> None:
    """Reduce a snapshot before you send it."""


@app.command(short_help="Reduce a snapshot to what a fact needs, without names.")
def reduce(
    snapshot: SnapshotArgument,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file that is written (.json, .zip).")],
    fact: Annotated[
        str,
        typer.Option(
            metavar="FACT",
            help="What must still hold: 'waiting NS/GROUP [REASON|any]' (by default for the reason it has "
            "now), 'served NS/GROUP', 'evicted NS/POD' or 'skipped OBJECT'.",
            rich_help_panel=INPUT,
        ),
    ],
    keep_names: Annotated[
        bool,
        typer.Option(
            "--keep-names", help="Write real names; by default they are replaced.", rich_help_panel=SHOWN
        ),
    ] = False,
    now: NowOption = None,
    *,
    config: ConfigOption = None,
) -> None:
    """Reduce a snapshot to the objects that a fact needs, and replace the names.

    Objects are left out as long as the fact still holds when the rest is decided again.

    Exit status: 0 written, 1 the input is bad or the fact is not true of it, 2 wrong usage.

    Examples:
    kai-cp snapshot reduce big.zip small.json --fact 'waiting team-a/llm'
    kai-cp snapshot reduce big.zip b.json --fact 'evicted b/sweep-0' --keep-names
    """
    import orjson

    from kai_cp.questions.reduce import BadFact, Fact, reduced
    from kai_cp.reading import taken_at

    try:
        wanted = Fact.of(fact)
    except BadFact as problem:
        fail(f"--fact: {problem}", WRONG_USAGE)
    settings = settings_or_exit(config, {}, defaults={"solver.budget_seconds": BUDGET_SECONDS})
    if output.suffix not in (".json", ".zip"):
        fail(f"OUTPUT: {output}: expected a name that ends in .json or .zip", WRONG_USAGE)
    writable_or_exit("OUTPUT", output)
    raw: Mapping[str, Any] = loaded_or_exit(source_or_exit(snapshot).path, settings).raw
    given = instant_or_exit(now)
    instant = given if given is not None else taken_at(raw) or 0.0
    found, plan = _decided(raw, settings, instant)
    wanted = wanted.with_reason(plan)
    if not _shows(found, plan, wanted):
        fail(f"{snapshot}: {fact!r} is not true of it{wanted.instead(plan)}", BAD_INPUT)

    def told(left: int, tries: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{left:,} objects left after {tries:,} tries", end="", file=sys.stderr, flush=True)

    def still(trial: Mapping[str, Any]) -> bool:
        left, decided = _decided(trial, settings, instant)
        # Without nodes everything waits, whatever the reason was.
        return bool(left.nodes) == bool(found.nodes) and _shows(left, decided, wanted)

    small = reduced(raw, still, told)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    subject = wanted.subject
    if not keep_names:
        small, subject = _renamed(small, wanted, settings, instant)
    try:
        output.write_bytes(
            _zipped(small) if output.suffix == ".zip" else orjson.dumps(small, option=orjson.OPT_INDENT_2)
        )
    except OSError as error:
        fail(f"{output}: {error.strerror or error}", WRONG_USAGE)
    count = sum(len(items) for items in small["rawObjects"].values() if isinstance(items, list))
    fact = f"{wanted.kind} {subject} {wanted.reason}".rstrip()
    before = "" if subject == wanted.subject else f", which was {wanted.subject}"
    typer.echo(f"{output}: {count:,} objects; still {fact}{before}")


def _holds(raw: Mapping[str, Any], fact: Fact, settings: Settings, instant: float) -> bool:
    return _shows(*_decided(raw, settings, instant), fact)


def _shows(found: Snapshot, plan: Plan, fact: Fact) -> bool:
    from kai_cp_models.plan import FAILED

    # An action that failed says nothing about the fact.
    return not any(stage.kind == FAILED for stage in plan.stages) and fact.holds(found, plan)


def _decided(raw: Mapping[str, Any], settings: Settings, instant: float) -> tuple[Snapshot, Plan]:
    from kai_cp.reader import parse
    from kai_cp_models.engine import decide

    found = parse(raw, now=instant)
    return found, decide(found, settings, trial=True)


def _renamed(
    small: Mapping[str, Any], fact: Fact, settings: Settings, instant: float
) -> tuple[dict[str, Any], str]:
    """The snapshot with replaced names, and the new name of the fact's subject."""
    from dataclasses import replace

    from kai_cp.kube.scheduler.anonymize import Anonymizer

    renaming = Anonymizer()
    hidden = renaming.snapshot(small)
    entry = {"podGroup": fact.subject, "reason": "", "message": "", "proof": "", "details": {}}
    subject = renaming.decisions({"unscheduled": [entry]})["unscheduled"][0]["podGroup"]
    if fact.kind == "skipped" or _holds(hidden, replace(fact, subject=subject), settings, instant):
        return hidden, subject
    complain("without its names the fact is no longer true, so they stay: read the file before you send it")
    return dict(small), fact.subject


def _zipped(raw: Mapping[str, Any]) -> bytes:
    from kai_cp.kube.scheduler.snapshot_file import archive

    return b"".join(archive(raw))
