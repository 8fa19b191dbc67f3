"""``kai-cp scheduler``, ``binder``, ``gpu-reservation``, ``crds`` and ``demo-cluster``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.kube.options import BadConfiguration, Mode
from kai_cp.kube.process import Connection, Life

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file; empty: the pod's own account, or the usual file.")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]
LogJson = Annotated[bool, typer.Option("--log-json/--log-text", help="Logs as JSON lines.")]
Verbosity = Annotated[int, typer.Option("-v", help="Log level as KAI's; from 5 on, debug.")]
Seconds = Annotated[str, typer.Option()]
LeaderElect = Annotated[
    bool, typer.Option("--leader-elect/--no-leader-elect", help="Only the holder of the lease writes.")
]
Lease = Annotated[
    str, typer.Option("--lease-seconds", help="Lease duration, renew deadline and retry period [s].")
]
Listen = Annotated[str, typer.Option(help="Address of /metrics, /healthz and /readyz; empty: none.")]
Qps = Annotated[float, typer.Option(help="Requests a second to the API server; 0: as it allows.")]
Burst = Annotated[int, typer.Option(help="Requests at once, with --qps.")]


def duration(text: str) -> float:
    """Seconds of a Go duration (``1m30s``) or a plain number."""
    from kai_cp.reader.fields import Malformed
    from kai_cp.reader.times import duration as parse

    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(parse(text, "duration"))
    except Malformed as problem:
        raise typer.BadParameter(str(problem)) from None


def lease_seconds(text: str) -> tuple[float, float, float]:
    """Three numbers: duration, renew deadline, retry period."""
    try:
        first, second, third = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter("three numbers with commas are needed, like 15,10,5") from None
    if not 0 < third <= second < first:
        raise typer.BadParameter("duration > renew deadline >= retry period > 0 is needed")
    return first, second, third


def _begin(log_json: bool, verbosity: int) -> Life:
    from kai_cp.kube.logs import configure

    configure(json=log_json, verbose=verbosity >= 5)
    life = Life(os._exit)
    life.handle_signals()
    return life


@app.command()
def scheduler(
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    mode: Annotated[
        Mode,
        typer.Option(help="observe: record plans; advise: also write reasons; enforce: also bind and evict."),
    ] = Mode.ENFORCE,
    settings: Annotated[Path | None, typer.Option(help="Settings of the engine (YAML).")] = None,
    scheduler_conf: Annotated[
        Path | None, typer.Option(help="The scheduler ConfigMap's file: actions, plugins.")
    ] = None,
    shard: Annotated[str, typer.Option(help="SchedulingShard whose configuration and pool are served.")] = "",
    scheduler_name: Annotated[str, typer.Option(help="schedulerName of the pods served.")] = "kai-scheduler",
    namespace: Annotated[str, typer.Option(help="Namespace of the leader lease.")] = "kai-scheduler",
    metrics_namespace: Annotated[str, typer.Option(help="Prefix of KAI's metrics.")] = "kai",
    resource_reservation_app_label: Annotated[
        str, typer.Option(help="Label app of reservation pods.")
    ] = "kai-resource-reservation",
    restrict_node_scheduling: Annotated[
        bool, typer.Option("--restrict-node-scheduling/--no-restrict-node-scheduling")
    ] = False,
    nodepool_label_key: Annotated[str, typer.Option(help="Label that divides the cluster.")] = (
        "kai.scheduler/node-pool"
    ),
    partition_label_value: Annotated[str, typer.Option(help="Its value served here.")] = "",
    queue_label_key: Annotated[str, typer.Option()] = "kai.scheduler/queue",
    schedule_period: Annotated[str, typer.Option(help="Least time between cycles under load.")] = "1s",
    max_consolidation_preemptees: Annotated[int, typer.Option(help="Pod groups; -1: any.")] = 16,
    detailed_fit_errors: Annotated[
        bool, typer.Option("--detailed-fit-errors/--no-detailed-fit-errors")
    ] = False,
    update_pod_eviction_condition: Annotated[
        bool, typer.Option("--update-pod-eviction-condition/--no-update-pod-eviction-condition")
    ] = False,
    schedule_csi_storage: Annotated[
        bool, typer.Option("--schedule-csi-storage/--no-schedule-csi-storage")
    ] = False,
    use_scheduling_signatures: Annotated[
        bool, typer.Option("--use-scheduling-signatures/--no-use-scheduling-signatures")
    ] = True,
    full_hierarchy_fairness: Annotated[
        bool, typer.Option("--full-hierarchy-fairness/--no-full-hierarchy-fairness")
    ] = True,
    allow_consolidating_reclaim: Annotated[
        bool, typer.Option("--allow-consolidating-reclaim/--no-allow-consolidating-reclaim")
    ] = True,
    num_of_status_recording_workers: Annotated[int, typer.Option(min=1)] = 5,
    default_staleness_grace_period: Annotated[str, typer.Option(help="Negative: never stale.")] = "60s",
    stuck_in_releasing_threshold: Annotated[str, typer.Option()] = "2m",
    listen_address: Listen = ":8080",
    plugin_server_address: Annotated[
        str, typer.Option(help="Address of /get-snapshot, /get-job-order and /debug; empty: none.")
    ] = "127.0.0.1:8081",
    plugin_server_port: Annotated[int, typer.Option(help="KAI's flag: port on loopback.")] = 0,
    anonymize: Annotated[bool, typer.Option("--anonymize", help="Serve snapshots without names.")] = False,
    qps: Qps = 0.0,
    burst: Burst = 300,
    leader_elect: LeaderElect = False,
    lease: Lease = "15,10,5",
    log_json: LogJson = True,
    v: Verbosity = 3,
) -> None:
    """Schedule a live cluster."""
    from kai_cp.kube import options as o
    from kai_cp.kube.scheduler_process import SchedulerSetup, run
    from kai_cp.settings import BadSettings, load

    connection = Connection(kubeconfig, context)
    values: dict[str, Any] = {
        "scheduler_name": scheduler_name,
        "namespace": namespace,
        "metrics_namespace": metrics_namespace,
        "resource_reservation_app_label": resource_reservation_app_label,
        "restrict_node_scheduling": restrict_node_scheduling,
        "nodepool_label_key": nodepool_label_key,
        "partition_label_value": partition_label_value,
        "queue_label_key": queue_label_key,
        "schedule_period": duration(schedule_period),
        "max_consolidation_preemptees": max_consolidation_preemptees,
        "detailed_fit_errors": detailed_fit_errors,
        "update_pod_eviction_condition": update_pod_eviction_condition,
        "schedule_csi_storage": schedule_csi_storage,
        "use_scheduling_signatures": use_scheduling_signatures,
        "full_hierarchy_fairness": full_hierarchy_fairness,
        "allow_consolidating_reclaim": allow_consolidating_reclaim,
        "num_of_status_recording_workers": num_of_status_recording_workers,
        "default_staleness_grace_period": duration(default_staleness_grace_period),
        "stuck_in_releasing_threshold": duration(stuck_in_releasing_threshold),
        "qps": qps,
        "burst": burst,
        "mode": mode,
        "leader_elect": leader_elect,
    }
    life = _begin(log_json, v)
    data = f"127.0.0.1:{plugin_server_port}" if plugin_server_port else plugin_server_address
    try:
        setup = SchedulerSetup(
            connection=connection,
            options=o.SchedulerOptions(**values),
            settings=load(settings),
            config=o.load_config(scheduler_conf) if scheduler_conf is not None else None,
            shard=shard,
            listen=listen_address,
            data=data,
            anonymize=anonymize,
            lease=lease_seconds(lease),
        )
        status = run(setup, life)
    except (BadConfiguration, BadSettings) as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(status)


@app.command()
def binder(
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the leader lease.")] = "kai-scheduler",
    scheduler_name: Annotated[str, typer.Option()] = "kai-scheduler",
    resource_reservation_namespace: Annotated[str, typer.Option()] = "kai-resource-reservation",
    resource_reservation_app_label: Annotated[str, typer.Option()] = "kai-resource-reservation",
    resource_reservation_service_account: Annotated[str, typer.Option()] = "kai-resource-reservation",
    resource_reservation_pod_image: Annotated[str, typer.Option(help="Image of this program.")] = "kai-cp",
    resource_reservation_allocation_timeout: Annotated[str, typer.Option()] = "40s",
    runtime_class_name: Annotated[str, typer.Option(help="Runtime class of reservation pods.")] = "",
    volume_binding_timeout_seconds: Annotated[float, typer.Option()] = 120.0,
    max_concurrent_reconciles: Annotated[int, typer.Option(min=1)] = 10,
    cdi_enabled: Annotated[bool, typer.Option("--cdi-enabled/--no-cdi-enabled")] = False,
    hami_core_enabled: Annotated[bool, typer.Option("--hami-core-enabled/--no-hami-core-enabled")] = False,
    listen_address: Listen = ":8080",
    qps: Qps = 0.0,
    burst: Burst = 300,
    leader_elect: LeaderElect = False,
    lease: Lease = "15,10,5",
    log_json: LogJson = True,
    v: Verbosity = 3,
) -> None:
    """Bind pods as bind requests say."""
    from kai_cp.kube.binder_options import BinderOptions
    from kai_cp.kube.binder_process import BinderSetup, run

    setup = BinderSetup(
        connection=Connection(kubeconfig, context),
        options=BinderOptions(
            namespace=namespace,
            scheduler_name=scheduler_name,
            reservation_namespace=resource_reservation_namespace,
            reservation_app=resource_reservation_app_label,
            reservation_service_account=resource_reservation_service_account,
            reservation_image=resource_reservation_pod_image,
            runtime_class_name=runtime_class_name,
            allocation_timeout_seconds=duration(resource_reservation_allocation_timeout),
            volume_timeout_seconds=volume_binding_timeout_seconds,
            max_concurrent_reconciles=max_concurrent_reconciles,
            cdi=cdi_enabled,
            hami=hami_core_enabled,
            qps=qps,
            burst=burst,
            leader_elect=leader_elect,
        ),
        listen=listen_address,
        lease=lease_seconds(lease),
    )
    raise typer.Exit(run(setup, _begin(log_json, v)))


@app.command("gpu-reservation")
def gpu_reservation(
    pod_name: Annotated[str, typer.Option(envvar="POD_NAME", help="Name of this pod.")],
    pod_namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of this pod.")],
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    log_json: LogJson = True,
) -> None:
    """Hold a shared GPU, and write down which one it is."""
    from kai_cp.kube.gpu_reservation import NoDevice, run

    try:
        status = run(Connection(kubeconfig, context), _begin(log_json, 3), pod_namespace, pod_name)
    except NoDevice as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(status)


@app.command()
def crds(
    apply: Annotated[
        bool, typer.Option("--apply/--print", help="Install what is missing, or print the definitions.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Print KAI's resource definitions, or install those that are missing; none is overwritten."""
    from kai_cp.kube.errors import KubeError
    from kai_cp.kube.install import definitions, install
    from kai_cp.kube.process import connect

    if not apply:
        typer.echo("---\n".join(text for text, _ in definitions()), nl=False)
        return
    transport = connect(Connection(kubeconfig, context), "admin", Life())
    try:
        for name, created in install(transport).items():
            typer.echo(f"{name}: {'created' if created else 'there already, left as it is'}")
    except KubeError as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
    finally:
        transport.close()


@app.command("demo-cluster")
def demo_cluster(
    nodes: Annotated[int, typer.Option(min=1, help="Fake nodes with 8 GPUs each.")] = 20,
    stay: Annotated[
        bool, typer.Option("--stay/--end", help="Stay until Ctrl-C, or end with the story.")
    ] = False,
) -> None:
    """Show the scheduler at work on a real control plane with fake nodes."""
    from kai_cp.kube.demo.run import NoControlPlane, run

    try:
        raise typer.Exit(run(nodes, stay=stay))
    except NoControlPlane as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
