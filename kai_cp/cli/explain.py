"""``kai-cp explain``: why a pod group waits, which tried changes would help, and when it starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    OFFLINE,
    WRONG_USAGE,
    fail,
    instant_or_exit,
    loaded_or_exit,
    settings_or_exit,
    source_or_exit,
    usage_or_exit,
)
from kai_cp.cli.options import SHOWN, ConfigOption, NowOption, SnapshotArgument, UsageOption

if TYPE_CHECKING:
    from kai_cp.explain.document import Explainer
    from kai_cp_models.pods import GroupKey
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class ExplainedFormat(StrEnum):
    """What goes to standard output."""

    TEXT = "text"
    JSON = "json"


@app.command()
def explain(
    snapshot: SnapshotArgument,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="A pod group, a pod (pod/NAME), or what owns them (job/NAME): [KIND/][NAMESPACE/]NAME.",
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
        typer.Option(metavar="A,B", help="Look for fixes of these kinds only.", rich_help_panel=SHOWN),
    ] = None,
    no_fixes: Annotated[
        bool, typer.Option("--no-fixes", help="Do not look for fixes.", rich_help_panel=SHOWN)
    ] = False,
    *,
    format: Annotated[
        ExplainedFormat, typer.Option("--format", "-o", help="Text, or explanation/1.", rich_help_panel=SHOWN)
    ] = ExplainedFormat.TEXT,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time for the start and the fixes of each pod group.")
    ] = 10.0,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
) -> None:
    """Say why pod groups wait: which rules block them, what would help, and when they start.

    Nothing is changed anywhere. Blocking rules are proved, and every fix was tried: applied to the snapshot,
    which was then decided again.

    Examples:
    kai-cp explain snapshot.zip podgroup/team-a/llm-7b
    kai-cp explain snapshot.zip pod/team-a/llm-7b-0 --kinds wait,move
    kai-cp explain snapshot.zip pytorchjob/team-a/llm-7b
    kai-cp explain snapshot.zip --all --no-fixes -o json
    """
    import orjson

    from kai_cp.explain.document import Explainer, document
    from kai_cp.explain.draft import Draft
    from kai_cp.explain.text import as_of, lines

    if (target is None) == (not everything):
        fail("name one pod group, pod or workload, such as job/team-a/train, or give --all", WRONG_USAGE)
    settings = settings_or_exit(config, {}, defaults=OFFLINE)
    wanted = _kinds(kinds, settings.explain.fix_order) if not no_fixes else ()
    began = time.monotonic()
    name, raw, digest, instant = raw_or_exit(snapshot, instant_or_exit(now), settings)
    explainer = Explainer(Draft(raw, instant), settings, usage_or_exit(usage), max(0.0, budget), wanted)
    explainer.timings["read"] = time.monotonic() - began - explainer.timings["decide"]
    keys = explainer.waiting() if target is None else _keys(explainer, target)
    entries = explainer.explain_all(keys)
    found = document(explainer, entries, digest)
    if format is ExplainedFormat.JSON:
        sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
        return
    for entry in entries:
        for line in lines(entry):
            typer.echo(line)
        if everything:
            typer.echo()
    if not entries:
        typer.echo("Nothing waits, and this cycle disturbs nothing.")
    for line in as_of(found["now"], name, found.get("cutDuring")):
        typer.echo(line)


def raw_or_exit(
    argument: str, now: float | None, settings: Settings
) -> tuple[str, dict[str, object], str, float]:
    """The one snapshot that an argument names: name, content, SHA-256, and the time as of which it is
    read.
    """
    from kai_cp.reading import as_of

    source = source_or_exit(argument)
    loaded = loaded_or_exit(source.path, settings)
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


def _keys(explainer: Explainer, text: str) -> list[GroupKey]:
    """The pod groups of a target; an unknown one ends the program."""
    from kai_cp.explain.draft import BadOperation
    from kai_cp.explain.targets import OURS, owned_groups, target_of, the_one

    snapshot = explainer.decided.snapshot
    owned = owned_groups(explainer.draft.raw)
    try:
        target = target_of(text, owned)
        if target.kind not in OURS:
            owner = the_one(target, [key for kind, key in owned if kind == target.kind])
            names = [("podgroup", key) for key in owned[target.kind, owner]]
        elif target.namespace:
            names = [(target.kind, f"{target.namespace}/{target.name}")]
        else:
            known = snapshot.group_by_key if target.kind == "podgroup" else snapshot.pod_by_key
            aside = (entry.item.partition(" ") for entry in snapshot.set_aside)
            left_out = [name for kind, _, name in aside if kind.lower() == target.kind]
            names = [(target.kind, the_one(target, [*map(str, known), *left_out]))]
    except BadOperation as problem:
        fail(str(problem), WRONG_USAGE)
    return [group_or_exit(snapshot, kind, name) for kind, name in names]


def group_or_exit(snapshot: Snapshot, kind: str, name: str) -> GroupKey:
    """The pod group that a name means; what was set aside says why, the rest ends with the nearest names."""
    from kai_cp.explain.draft import nearest
    from kai_cp_models.pods import GroupKey, PodKey

    space, _, plain = name.partition("/")
    title = "PodGroup" if kind == "podgroup" else "Pod"
    for entry in snapshot.set_aside:
        missing = GroupKey(space, plain) not in snapshot.group_by_key
        if entry.item == f"{title} {name}" and (kind == "pod" or missing):
            fail(f"{kind} {name} is left out of all decisions: {entry.reason}", BAD_INPUT)
    if kind == "podgroup":
        key = GroupKey(space, plain)
        if key in snapshot.group_by_key:
            return key
        fail(
            f"there is no podgroup {name}{nearest(name, list(map(str, snapshot.group_by_key)))}", WRONG_USAGE
        )
    pod = snapshot.pod_by_key.get(PodKey(space, plain))
    if pod is None:
        fail(f"there is no pod {name}{nearest(name, list(map(str, snapshot.pod_by_key)))}", WRONG_USAGE)
    if pod.group is None or pod.group not in snapshot.group_by_key:
        fail(f"pod {name} belongs to no pod group of this scheduler", WRONG_USAGE)
    return pod.group
