"""The command line: which commands there are, and where each lives."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import typer

from kai_cp.cli.lazy import LazyCommand, LazyGroup

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
"""For every command: ``-h`` is help, and no page is wider than 80 columns."""
_OFFLINE: Final = "On a snapshot"
_CLUSTER: Final = "In a cluster"
_MEASURE: Final = "Measure and tune"
_SETTINGS: Final = "Settings"


class Commands(LazyGroup):
    """Every command of ``kai-cp``."""

    table: ClassVar = {
        "solve": LazyCommand("kai_cp.cli.solve", "Decide what to bind, nominate and evict.", _OFFLINE),
        "check": LazyCommand("kai_cp.cli.check", "Check decisions against every contract rule.", _OFFLINE),
        "inspect": LazyCommand("kai_cp.cli.inspect", "Show nodes, queues and what waits.", _OFFLINE),
        "explain": LazyCommand("kai_cp.cli.explain", "Say why a job waits, and what would help.", _OFFLINE),
        "what-if": LazyCommand("kai_cp.cli.whatif", "Show what a change would do.", _OFFLINE),
        "admit": LazyCommand("kai_cp.admission.cli", "Say what admission does with objects.", _OFFLINE),
        "topology": LazyCommand("kai_cp.cli.topology", "Show racks, NVLink domains, free GPUs.", _OFFLINE),
        "group": LazyCommand("kai_cp.cli.group", "Show the pod groups that workloads get.", _OFFLINE),
        "pending": LazyCommand("kai_cp.cli.ask", "Show what waits, in order, and why.", _OFFLINE),
        "queues": LazyCommand("kai_cp.cli.ask", "Show what each queue has and is owed.", _OFFLINE),
        "evictions": LazyCommand("kai_cp.cli.ask", "Show what is evicted, and for what.", _OFFLINE),
        "plan": LazyCommand("kai_cp.cli.ask", "Show the whole plan of the next cycle.", _OFFLINE),
        "audit": LazyCommand("kai_cp.cli.ask", "Show queues owed, and queues above their share.", _OFFLINE),
        "diff": LazyCommand("kai_cp.cli.diff", "Compare two answers or two snapshots.", _OFFLINE),
        "snapshot": LazyCommand("kai_cp.cli.snapshot", "Reduce a snapshot before you send it.", _OFFLINE),
        "defrag": LazyCommand("kai_cp.cli.defrag", "Show what moving pods would free.", _OFFLINE),
        "reserve": LazyCommand("kai_cp.cli.reserve", "Show reservations and planned starts.", _OFFLINE),
        "view": LazyCommand("kai_cp.cli.view", "Make a page to open in a browser.", _OFFLINE),
        "schema": LazyCommand("kai_cp.cli.schema", "Print the JSON Schema of a document.", _SETTINGS),
        "config": LazyCommand("kai_cp.cli.config", "Explain and show the settings.", _SETTINGS),
        "bench": LazyCommand("kai_cp.bench.cli", "Run the benchmark suites.", _MEASURE),
        "tune": LazyCommand("kai_cp.tune.cli", "Compare settings, or search better ones.", _MEASURE),
        "scheduler": LazyCommand("kai_cp.kube.cli", "Schedule a live cluster.", _CLUSTER),
        "binder": LazyCommand("kai_cp.kube.cli", "Bind pods as BindRequests order.", _CLUSTER),
        "controllers": LazyCommand("kai_cp.kube.cli", "Group pods; status of groups and queues.", _CLUSTER),
        "admission": LazyCommand("kai_cp.kube.cli", "Check objects when they are written.", _CLUSTER),
        "migrate": LazyCommand("kai_cp.kube.cli", "Say what to install in place of KAI's parts.", _CLUSTER),
        "webhooks": LazyCommand("kai_cp.kube.cli", "Print the webhook configurations.", _CLUSTER),
        "gpu-reservation": LazyCommand("kai_cp.kube.cli", "Hold a shared GPU (runs in its pod).", _CLUSTER),
        "demo-cluster": LazyCommand(
            "kai_cp.kube.cli", "Show a small live cluster being scheduled.", _CLUSTER
        ),
        "crds": LazyCommand("kai_cp.kube.cli", "Print or install the resource definitions.", _CLUSTER),
    }


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich doubles the time of a page and cuts the names of options.
    context_settings=CONTEXT,
)


def _version(wanted: bool) -> None:
    if wanted:
        from kai_cp.decisions import version

        typer.echo(f"kai-cp {version()}")
        raise typer.Exit


@app.callback()
def overview(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Schedule GPU clusters that use KAI's objects: checked decisions by constraint programming."""


command = typer.main.get_command(app)


def run() -> int:
    """Run the command line of this process and return its exit status. Every failure is one sentence."""
    from kai_cp.cli.streams import guarded

    return guarded(lambda: command.main(prog_name="kai-cp"))
