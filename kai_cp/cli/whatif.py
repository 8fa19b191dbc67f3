"""``kai-cp what-if``: what a change would do, before it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from kai_cp.cli.common import (
    BAD_INPUT,
    OFFLINE,
    WRONG_USAGE,
    fail,
    instant_or_exit,
    seconds_or_exit,
    settings_or_exit,
    usage_or_exit,
)
from kai_cp.cli.explain import raw_or_exit
from kai_cp.cli.help import HelpfulCommand
from kai_cp.cli.options import (
    SEARCH,
    ConfigOption,
    FormatOption,
    NowOption,
    SnapshotArgument,
    UsageOption,
)
from kai_cp.cli.output import OutputFormat, answer, of_rows

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_NODES: Final = "Operations on nodes, in the order given"
_POLICY: Final = "Operations on queues, actions and time"
_WORK: Final = "Operations on workloads"
_ASKED: Final = "What is asked"
_ARGUMENTS: Final = "kai_cp.arguments"
_QUESTIONS: Final = ("until_settled", "least", "bound")
"""Options that ask a question without a change. Options that make a change are lists."""


class _Ordered(HelpfulCommand):
    """Keeps the words of the command line, because operations apply in the order in which they stand there.
    Refuses words that ask nothing before anything is read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing and not any(
            value
            for name, value in ctx.params.items()
            if isinstance(value, list | tuple) or name in _QUESTIONS
        ):
            fail(
                "name a change, such as --drain NODE, or what is asked: --until-settled, --least, --bound",
                WRONG_USAGE,
            )
        return rest


def _option(
    name: str, metavar: str, text: str, panel: str, completed: Callable[[], list[str]] | None = None
) -> Any:
    return typer.Option(
        name,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        show_default=False,
        autocompletion=completed,
    )


def _actions() -> list[str]:
    """For completion of the shell."""
    from kai_cp_models.policy import POLICY_ACTIONS

    return sorted(POLICY_ACTIONS)


Texts = list[str] | None
_GROUP = "podgroup/NS/NAME"


@app.command(name="what-if", cls=_Ordered)
def what_if(
    context: typer.Context,
    snapshot: SnapshotArgument,
    add_nodes: Annotated[Texts, _option("--add-nodes", "NODE=N", "Add N copies of NODE.", _NODES)] = None,
    remove_nodes: Annotated[
        Texts, _option("--remove-nodes", "A,B", "Remove nodes; their pods wait.", _NODES)
    ] = None,
    drain: Annotated[Texts, _option("--drain", "A,B", "Cordon nodes; their pods wait.", _NODES)] = None,
    *,
    cordon: Annotated[
        Texts, _option("--cordon", "A,B", "Cordon nodes: they take no new pods.", _NODES)
    ] = None,
    uncordon: Annotated[
        Texts, _option("--uncordon", "A,B", "Uncordon nodes: they take pods again.", _NODES)
    ] = None,
    untaint: Annotated[Texts, _option("--untaint", "A=KEY", "Take a taint off a node.", _NODES)] = None,
    set_queue: Annotated[
        Texts,
        _option(
            "--set-queue",
            "Q.gpu.quota=V",
            "Set quota, limit or weight as queues state them: GPUs, thousandths of a CPU, MB; Q.priority=V.",
            _POLICY,
        ),
    ] = None,
    enable: Annotated[Texts, _option("--enable", "ACTION", "Switch an action on.", _POLICY, _actions)] = None,
    disable: Annotated[
        Texts, _option("--disable", "ACTION", "Switch an action off.", _POLICY, _actions)
    ] = None,
    after: Annotated[
        Texts, _option("--after", "30m", "Look this much later; pods that end by then are gone.", _POLICY)
    ] = None,
    at: Annotated[Texts, _option("--at", "RFC3339", "Look at this time.", _POLICY)] = None,
    add: Annotated[Texts, _option("--add", "FILE", "Add the objects of a YAML or JSON file.", _WORK)] = None,
    remove: Annotated[
        Texts, _option("--remove", _GROUP, "Remove a workload, as if it had finished.", _WORK)
    ] = None,
    stop: Annotated[Texts, _option("--stop", "pod/NS/NAME,…", "Stop pods.", _WORK)] = None,
    move: Annotated[Texts, _option("--move", "pod/NS/NAME=NODE", "Move a running pod.", _WORK)] = None,
    set_priority: Annotated[
        Texts, _option("--set-priority", f"{_GROUP}=V", "Set another priority.", _WORK)
    ] = None,
    set_topology: Annotated[
        Texts,
        _option("--set-topology", f"{_GROUP}=LEVEL", "Require another topology level; empty: none.", _WORK),
    ] = None,
    set_request: Annotated[
        Texts, _option("--set-request", f"{_GROUP}.gpu=V", "Request another amount for each pod.", _WORK)
    ] = None,
    set_min_member: Annotated[
        Texts, _option("--set-min-member", f"{_GROUP}=N", "Set the gang's minimum.", _WORK)
    ] = None,
    tolerate: Annotated[Texts, _option("--tolerate", f"{_GROUP}=KEY", "Tolerate a taint.", _WORK)] = None,
    drop_selector: Annotated[
        Texts, _option("--drop-selector", f"{_GROUP}=KEY", "Drop node selector keys.", _WORK)
    ] = None,
    set_group_queue: Annotated[
        Texts, _option("--set-group-queue", f"{_GROUP}=QUEUE", "Move it to another queue.", _WORK)
    ] = None,
    ungate: Annotated[Texts, _option("--ungate", _GROUP, "Remove scheduling gates.", _WORK)] = None,
    clear_backoff: Annotated[
        Texts, _option("--clear-backoff", _GROUP, "Clear the scheduling backoff.", _WORK)
    ] = None,
    create: Annotated[Texts, _option("--create", "KIND/NS/NAME", "Create a missing object.", _WORK)] = None,
    until_settled: Annotated[
        bool,
        typer.Option(
            "--until-settled",
            help="Run cycles on both clusters until one decides nothing.",
            rich_help_panel=_ASKED,
        ),
    ] = False,
    most: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Most cycles of --until-settled, or largest amount of --least.",
            rich_help_panel=_ASKED,
        ),
    ] = 20,
    least: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Find the least change that helps: nodes:NODE, limit:Q.RES, quota:Q.RES, stop or move.",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="NAME,…",
            help="What --least has to admit: all, or names such as job/team-a/train.",
            rich_help_panel=_ASKED,
        ),
    ] = "all",
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Show the most GPUs that any scheduler could have in use.",
            rich_help_panel=_ASKED,
        ),
    ] = False,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Counted work for --least; about seconds of an idle core.",
            rich_help_panel=SEARCH,
        ),
    ] = 60.0,
    format: FormatOption = OutputFormat.TABLE,
    now: NowOption = None,
    usage: UsageOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what a change would do, in one cycle or until nothing changes any more.

    Nothing is written.

    Exit status: 0 answered, 1 the snapshot or a file of --add is bad, 2 wrong usage, or no object of
    that name.

    Examples:
    kai-cp what-if snapshot.zip --drain n7
    kai-cp what-if snapshot.zip --set-queue team-a.gpu.quota=32 --until-settled
    kai-cp what-if snapshot.zip --least nodes:gpu8 --for all
    """
    from kai_cp.explain.cycle import Cycles
    from kai_cp.explain.draft import BadOperation, Draft
    from kai_cp.explain.least import Least, targets_of
    from kai_cp.explain.whatif import whatif
    from kai_cp.explain.whatif_text import lines
    from kai_cp_models.queries.why import Work

    seconds_or_exit("--budget", budget)
    settings = settings_or_exit(config, {}, defaults=OFFLINE)
    name, raw, digest, instant = raw_or_exit(snapshot, instant_or_exit(now), settings)
    ops = _operations(context.meta.get(_ARGUMENTS, ()), instant)
    cycles = Cycles(settings, usage_or_exit(usage))
    try:
        found, after_ = whatif(
            cycles,
            Draft(raw, instant),
            ops,
            settle=most if until_settled else None,
            bound=bound,
            sha256=digest,
        )
        if least is not None:
            question = Least.of(least, targets_of(target, after_), most)
            cycles.work = Work(budget)
            found["least"] = question.answer(cycles, after_)
    except BadOperation as problem:
        fail(str(problem), WRONG_USAGE)
    kinds = ("gain", "lose", "addedPlaced")
    rows = [{"podGroup": group, "change": kind} for kind in kinds for group in found["diff"][kind]]

    def show(_wide: bool) -> None:
        for line in lines(found, name):
            typer.echo(line)

    answer(of_rows(found, rows, ("podGroup", "change"), "podgroup/{podGroup}", show), format)


def _operations(arguments: Sequence[str], now: float) -> list[dict[str, Any]]:
    """The operations of the command line; what is wrong with one ends the program."""
    from kai_cp.explain.command_line import BadFile, in_order, operation
    from kai_cp.explain.draft import BadOperation

    found: list[dict[str, Any]] = []
    for option, value in in_order(arguments):
        try:
            found += operation(option, value, now)
        except BadFile as problem:
            fail(f"{option}: {problem}", BAD_INPUT)
        except BadOperation as problem:
            fail(str(problem), WRONG_USAGE)
    return found
