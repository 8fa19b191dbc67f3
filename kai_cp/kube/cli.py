"""``kai-cp scheduler``, ``binder``, ``gpu-reservation``, ``crds`` and ``demo-cluster``."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kai_cp.cli.options import SHOWN
from kai_cp.kube.admission.options import AdmissionOptions, RegistrationOptions
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.scheduler.options import BadConfiguration, SchedulerOptions, load_config
from kai_cp.kube.serving.address import Address
from kai_cp.kube.serving.flags import expanded
from kai_cp.kube.serving.process import Connection, Lifecycle, Logging, Service

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _begin(logging: Logging) -> Lifecycle:
    from prometheus_client import disable_created_metrics

    from kai_cp.kube.serving.logs import configure

    configure(json=logging.log_json, verbose=logging.verbosity >= 5)
    # A second series for every counter would be of no use.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    life = Lifecycle(os._exit)
    life.handle_signals()
    return life


@app.command()
@expanded
def scheduler(
    connection: Connection,
    options: SchedulerOptions,
    service: Service,
    logging: Logging,
    settings: Annotated[Path | None, typer.Option(help="Settings of the engine (YAML).")] = None,
    *,
    scheduler_conf: Annotated[
        Path | None, typer.Option(help="The scheduler ConfigMap's file: actions, plugins.")
    ] = None,
    shard: Annotated[str, typer.Option(help="SchedulingShard whose configuration and pool are served.")] = "",
    plugin_server_address: Annotated[
        str, Address("Address of /get-snapshot, /get-job-order and /debug; empty: none.")
    ] = "127.0.0.1:8081",
    plugin_server_port: Annotated[
        int, typer.Option(help="KAI's flag: port on loopback.", min=0, max=65535)
    ] = 0,
    anonymize: Annotated[bool, typer.Option("--anonymize", help="Serve snapshots without names.")] = False,
) -> None:
    """Schedule a live cluster.

    Exit status: 0 ended as asked, 1 a request that it needs failed, 2 wrong usage, 3 no cluster, or the lease
    was lost, 4 the API server refuses the credentials, 5 it did not end in time.

    Examples:
    kai-cp scheduler --mode observe
    kai-cp scheduler --mode enforce --leader-elect --settings settings.yaml
    """
    from kai_cp.kube.scheduler.process import SchedulerSetup, run
    from kai_cp.settings import BadSettings, load

    life = _begin(logging)
    try:
        setup = SchedulerSetup(
            connection=connection,
            service=service,
            options=options,
            settings=load(settings),
            config=load_config(scheduler_conf) if scheduler_conf is not None else None,
            shard=shard,
            data=f"127.0.0.1:{plugin_server_port}" if plugin_server_port else plugin_server_address,
            anonymize=anonymize,
        )
        status = run(setup, life)
    except (BadConfiguration, BadSettings) as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(status)


@app.command()
@expanded
def binder(connection: Connection, options: BinderOptions, service: Service, logging: Logging) -> None:
    """Bind pods as BindRequests order.

    Exit status: 0 ended as asked, 1 a request that it needs failed, 2 wrong usage, 3 no cluster, or the lease
    was lost, 4 the API server refuses the credentials, 5 it did not end in time.

    Examples:
    kai-cp binder --leader-elect
    """
    from kai_cp.kube.binder.process import BinderSetup, run

    raise typer.Exit(run(BinderSetup(connection, service, options), _begin(logging)))


@app.command()
@expanded
def admission(connection: Connection, options: AdmissionOptions, logging: Logging) -> None:
    """Check pods, queues, pod groups and topologies when they are written.

    Exit status: 0 ended as asked, 1 a request that it needs failed, 2 wrong usage, 3 no cluster, or the
    address is in use, 4 the API server refuses the credentials, 5 it did not end in time.

    Examples:
    kai-cp admission --gpu-sharing-enabled
    """
    from kai_cp.kube.admission.process import run

    raise typer.Exit(run(connection, options, _begin(logging)))


@app.command()
@expanded
def webhooks(options: RegistrationOptions) -> None:
    """Print the webhook configurations that send requests to admission.

    Exit status: 0 printed, 2 wrong usage.

    Examples:
    kai-cp webhooks --failure-policy Ignore > webhooks.yaml
    """
    import yaml

    from kai_cp.cli.common import WRONG_USAGE, fail
    from kai_cp.kube.admission.registration import configurations

    if options.url and not options.url.startswith("https://"):
        fail(f"--url: {options.url!r} does not begin with https://, as an API server demands", WRONG_USAGE)
    typer.echo(yaml.safe_dump_all(configurations(options), sort_keys=False), nl=False)


@app.command()
@expanded
def controllers(
    connection: Connection,
    options: ControllerOptions,
    service: Service,
    logging: Logging,
    controllers: Annotated[
        str, typer.Option(help="Controllers to run, joined by commas; KAI may run the others.")
    ] = "podgrouper,podgroup-controller,queue-controller",
) -> None:
    """Group pods, and keep the status of pod groups and queues.

    Exit status: 0 ended as asked, 1 a request that it needs failed, 2 wrong usage, 3 no cluster, or the lease
    was lost, 4 the API server refuses the credentials, 5 it did not end in time.

    Examples:
    kai-cp controllers --leader-elect
    kai-cp controllers --controllers podgrouper
    """
    from kai_cp.kube.controllers.catalogue import chosen
    from kai_cp.kube.controllers.options import metric_labels
    from kai_cp.kube.controllers.podgrouper import grouping_settings
    from kai_cp.kube.controllers.process import ControllersSetup, run

    life = _begin(logging)
    try:
        names = tuple(chosen(controllers))
        grouping_settings(options)
        metric_labels(options)
    except ValueError as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(run(ControllersSetup(names, connection, service, options), life))


@app.command("gpu-reservation")
@expanded
def gpu_reservation(
    connection: Connection,
    logging: Logging,
    pod_name: Annotated[str, typer.Option(envvar="POD_NAME", help="Name of this pod.")],
    pod_namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of this pod.")],
) -> None:
    """Hold a shared GPU, and write its device to an annotation.

    Exit status: 0 ended as asked, 1 it does not see one GPU, or its pod is gone, 2 wrong usage, 3 no cluster,
    4 the API server refuses the credentials, 5 it did not end in time.
    """
    from kai_cp.kube.binder.gpu_reservation import NoDevice, run

    try:
        status = run(connection, _begin(logging), pod_namespace, pod_name)
    except NoDevice as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(status)


@app.command()
@expanded
def crds(
    connection: Connection,
    apply: Annotated[
        bool, typer.Option("--apply/--print", help="Install what is missing, or print the definitions.")
    ] = False,
) -> None:
    """Print KAI's resource definitions, or install those that are missing; none is overwritten.

    Exit status: 0 printed or installed, 2 wrong usage, 3 the cluster does not answer or refuses it.

    Examples:
    kai-cp crds | kubectl diff -f -
    kai-cp crds --apply --context staging
    """
    from kai_cp.cli.common import MISSING, fail
    from kai_cp.kube.api.errors import KubeError
    from kai_cp.kube.install import definitions, install
    from kai_cp.kube.serving.process import connect

    if not apply:
        typer.echo("---\n".join(text for text, _ in definitions()), nl=False)
        return
    transport = connect(connection, "admin", Lifecycle())
    try:
        for name, created in install(transport).items():
            typer.echo(f"{name}: {'created' if created else 'exists already, left unchanged'}")
    except KubeError as problem:
        fail(str(problem), MISSING)
    finally:
        transport.close()


class MigrationFormat(StrEnum):
    """How ``migrate`` prints."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


@app.command()
@expanded
def migrate(
    connection: Connection,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]", help="Config, shards or Helm values (YAML). Default: read the cluster."
        ),
    ] = None,
    format: Annotated[
        MigrationFormat,
        typer.Option("--format", "-o", help="Steps to read, or the document.", rich_help_panel=SHOWN),
    ] = MigrationFormat.TEXT,
) -> None:
    """Say what to install in place of a KAI installation, and what differs; changes nothing.

    Exit status: 0 printed, 1 a file is bad, or something was not understood (what was is printed), 2 wrong
    usage, 3 the cluster does not answer.

    Examples:
    kai-cp migrate
    kai-cp migrate config.yaml shards.yaml values.yaml
    kai-cp migrate config.yaml -o json
    """
    from kai_cp.cli.common import BAD_INPUT, MISSING, fail
    from kai_cp.cli.output import as_json, as_yaml, write
    from kai_cp.kube.api.errors import KubeError
    from kai_cp.kube.migration import UnreadableFile, from_cluster, from_files
    from kai_cp.migrate.report import migrate as migrated
    from kai_cp.migrate.text import told

    try:
        documents = from_files(files) if files else from_cluster(connection)
    except UnreadableFile as problem:
        fail(str(problem), BAD_INPUT)
    except KubeError as problem:
        fail(str(problem), MISSING)
    found = migrated(documents)
    match format:
        case MigrationFormat.JSON:
            write(as_json([found.to_json()]))
        case MigrationFormat.YAML:
            write(as_yaml([found.to_json()]))
        case MigrationFormat.TEXT:
            write(told(found))
    if found.unread:
        fail(f"not understood: {'; '.join(found.unread)}", BAD_INPUT)


@app.command("demo-cluster")
def demo_cluster(
    nodes: Annotated[int, typer.Option(min=1, help="Fake nodes with 8 GPUs each.")] = 20,
    stay: Annotated[
        bool, typer.Option("--stay/--end", help="Stay until Ctrl-C, or end when the demonstration is over.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Build the control plane without asking, where there is none.")
    ] = False,
) -> None:
    """Show the scheduler at work on a real control plane with fake nodes.

    The first time a Kubernetes API server is compiled, which takes about twelve minutes; it says so and asks.

    Exit status: 0 shown, 2 wrong usage, 3 there is no control plane.

    Examples:
    kai-cp demo-cluster
    kai-cp demo-cluster --nodes 50 --stay --yes
    """
    from kai_cp.kube.demo.run import NoControlPlane, run

    try:
        raise typer.Exit(run(nodes, stay=stay, yes=yes))
    except NoControlPlane as problem:
        typer.echo(f"kai-cp: {problem}", err=True)
        raise typer.Exit(3) from None
