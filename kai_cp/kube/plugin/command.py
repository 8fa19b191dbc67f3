"""The words of ``kubectl-kai_cp``: options of kubectl, then a command of ``kai-cp`` on the live cluster."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kai_cp.cli.common import BAD_INPUT, WRONG_USAGE, complain
from kai_cp.keys import RESERVATION_NAMESPACE
from kai_cp.kube.plugin.take import ClusterChoice, NoSnapshot, take
from kai_cp.kube.scheduler.options import SchedulerOptions

NAMESPACED: Final = ("pending", "evictions", "plan", "inspect", "solve")
"""Commands that show pod groups of namespaces."""
COMMANDS: Final = (*NAMESPACED, "queues", "audit", "topology", "explain", "what-if", "view", "check")
WATCH_SECONDS: Final = 5.0
SOURCES: Final = ("auto", "scheduler", "api")
HELP: Final = """\
Usage: kubectl kai-cp COMMAND [OPTIONS] [ARGUMENTS]

Read-only commands of kai-cp on the live cluster; `kai-cp COMMAND -h` has the
options of each.

  pending      what waits, in fair order, and why
  queues       what each queue has, borrows and is owed
  evictions    what is evicted, and for what
  plan         the whole plan of the next cycle
  audit        queues owed, and queues above their share
  explain [KIND/]NAME
               why a pod group, a pod or a workload waits, and what would help
  what-if      what a change of the cluster would do
  inspect      nodes, queues and what waits
  topology     racks, NVLink domains and free capacity
  view         a page to look at in a browser
  check        the independent checker on the last cycle
  diff FILE [FILE]
               what differs between two answers or snapshots; the cluster now
               is the second, if it is not given
  snapshot take FILE [--anonymize]
               the cluster as a file
  snapshot reduce FILE OUTPUT --fact FACT
               the part of it on which a fact still holds, without names

Options:
  -n, --namespace NAME   namespace of pod groups; default: the context's
  -A, --all-namespaces   all namespaces
  --kubeconfig FILE      the kubeconfig file
  --context NAME         its context
  -w, --watch            again every 5 seconds until Ctrl-C
  --source WHERE         scheduler (its last cycle), api (the lists), auto
  --snapshot FILE        read this file instead of the cluster
  --scheduler-name NAME  schedulerName of the pods, with --source api
  --reservation-namespace NAME
                         namespace of reservation pods, with --source api
                         (the chart's reservation.namespace)
  -h, --help             this page

Rights: the ClusterRole of the chart that ends in -reader. Where pods of the
scheduler may be reached (pods/portforward), its own last decisions are shown;
elsewhere the lists are read and decided here.

Exit status: 0 shown (diff: nothing differs), 1 bad input (diff: something
differs), 2 wrong usage (diff: or bad input), 3 no kubeconfig or kubectl, 5 the
API server cannot be reached, 6 it refuses the credentials, 7 a right is
missing, 8 no scheduler of kai-cp answers (--source=scheduler).
"""


@dataclass(slots=True)
class PluginRequest:
    """What the arguments ask for; ``rest``: what the command itself is given."""

    command: str = ""
    cluster: ClusterChoice = field(default_factory=ClusterChoice)
    namespace: str = ""
    everywhere: bool = False
    watch: bool = False
    source: str = "auto"
    snapshot: str = ""
    scheduler_name: str = "kai-scheduler"
    reservation_namespace: str = RESERVATION_NAMESPACE
    rest: list[str] = field(default_factory=list)

    def taken(self) -> tuple[bytes, str]:
        """The cluster as a zip, and where it comes from."""
        options = SchedulerOptions(
            nodepool_label_key="",
            scheduler_name=self.scheduler_name,
            resource_reservation_namespace=self.reservation_namespace,
        )
        return take(self.cluster, self.source, options)


class BadRequest(ValueError):
    """Invalid arguments; the text says which."""


VALUES: Final = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--kubeconfig": "kubeconfig",
    "--context": "context",
    "--source": "source",
    "--snapshot": "snapshot",
    "--scheduler-name": "scheduler_name",
    "--reservation-namespace": "reservation_namespace",
}
SWITCHES: Final = {"-A": "everywhere", "--all-namespaces": "everywhere", "-w": "watch", "--watch": "watch"}


def parsed(arguments: Sequence[str]) -> PluginRequest:
    """The request of the command line; options that are not the plugin's go to the command.

    Raises ``BadRequest``.
    """
    request = PluginRequest()
    cluster = {"kubeconfig": "", "context": ""}
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("-n") and name != "-n":  # kubectl also takes -nNAME.
            name, equals, value = "-n", "=", word[2:]
        if name in SWITCHES and not equals:
            setattr(request, SWITCHES[name], True)
        elif name in VALUES:
            if not equals:
                if not left:
                    raise BadRequest(f"{name} needs a value")
                value = left.pop(0)
            if VALUES[name] in cluster:
                cluster[VALUES[name]] = value
            else:
                setattr(request, VALUES[name], value)
        elif not request.command and not word.startswith("-"):
            request.command = word
        else:
            request.rest.append(word)
    request.cluster = ClusterChoice(**cluster)
    if request.source not in SOURCES:
        raise BadRequest(f"--source {request.source}: expected one of {', '.join(SOURCES)}")
    known = [*COMMANDS, "snapshot", "diff"]
    if request.command not in known:
        from kai_cp.explain.draft import nearest

        near = nearest(request.command, known)
        raise BadRequest(f"there is no command {request.command}{near}; `kubectl kai-cp -h` lists all")
    return request


def run(arguments: Sequence[str]) -> int:
    """Run the plugin; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    try:
        request = parsed(arguments)
        if request.command == "diff":
            return _difference(request)
        if request.command == "snapshot":
            return _snapshot(request)
        return _shown(request)
    except BadRequest as problem:
        complain(str(problem))
        return WRONG_USAGE
    except NoSnapshot as problem:
        complain(str(problem))
        return problem.status


def _difference(request: PluginRequest) -> int:
    """Two files side by side, or one and the cluster as it is now."""
    values = {i + 1 for i, word in enumerate(request.rest) if word in ("-o", "--format")}
    files = [w for i, w in enumerate(request.rest) if not w.startswith("-") and i not in values]
    if len(files) != 1 or _asks_for_help(request):
        return _command(["diff", *request.rest])
    with tempfile.TemporaryDirectory(prefix="kai-cp-") as folder:
        path = _file_in(folder, request)
        at = request.rest.index(files[0]) + 1
        words = ["diff", *request.rest[:at], str(path), *request.rest[at:]]
        return _command(words, lambda: _take(request, path))


def _file_in(folder: str, request: PluginRequest) -> Path:
    return Path(folder) / f"{_name(request.cluster)}.zip"


def _take(request: PluginRequest, path: Path) -> None:
    """Put the cluster into the file; a message says where it comes from."""
    data, origin = request.taken()
    path.write_bytes(data)
    print(f"from {origin}", file=sys.stderr)


def _snapshot(request: PluginRequest) -> int:
    if request.rest[:1] == ["reduce"]:
        return _command(["snapshot", *request.rest])
    if _asks_for_help(request):
        print(HELP, end="")
        return 0
    if request.rest[:1] != ["take"]:
        raise BadRequest("snapshot take FILE, or snapshot reduce SNAPSHOT OUTPUT --fact FACT, is meant")
    files = [word for word in request.rest[1:] if word != "--anonymize"]
    if unknown := [word for word in files if word.startswith("-")]:
        raise BadRequest(f"snapshot take has no option {unknown[0]}")
    if len(files) != 1:
        raise BadRequest("snapshot take needs one FILE")
    data, origin = request.taken()
    if "--anonymize" in request.rest:
        data = _anonymized(data)
    target = Path(files[0])
    try:
        target.write_bytes(data)
    except OSError as error:
        complain(f"{target}: {error.strerror or error}")
        return BAD_INPUT
    print(f"{target}: {len(data) / 1024:,.0f} KiB, from {origin}")
    return 0


def _asks_for_help(request: PluginRequest) -> bool:
    return not {"-h", "--help"}.isdisjoint(request.rest)


def _anonymized(data: bytes) -> bytes:
    from kai_cp.files import within
    from kai_cp.kube.scheduler.anonymize import Anonymizer
    from kai_cp.kube.scheduler.snapshot_file import archive
    from kai_cp.reading import loaded
    from kai_cp_models.settings import Settings

    settings = Settings()
    with within(settings.limits.read_seconds, "--anonymize"):
        return b"".join(archive(Anonymizer().snapshot(loaded(data, settings).raw)))


def _shown(request: PluginRequest) -> int:
    words = _words(request)
    with tempfile.TemporaryDirectory(prefix="kai-cp-") as folder:
        path = _file_in(folder, request)

        def before() -> None:
            if not request.snapshot:
                _take(request, path)
            if request.watch and sys.stdout.isatty():
                print("\033[2J\033[H", end="")

        while True:
            status = _command([request.command, request.snapshot or str(path), *words], before)
            if status or not request.watch:
                return status
            time.sleep(WATCH_SECONDS)


def _name(cluster: ClusterChoice) -> str:
    """A file's name of the context."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in cluster.context) or "cluster"


def _words(request: PluginRequest) -> list[str]:
    """The command's own arguments, with the namespace where it has one."""
    namespace = "" if request.everywhere else request.namespace
    if request.command == "explain":
        return _with_namespace(request.rest, namespace or _own_namespace(request.cluster))
    if request.command not in NAMESPACED or request.everywhere:
        return list(request.rest)
    if not namespace and not request.snapshot and not _asks_for_help(request):
        namespace = _own_namespace(request.cluster)
        print(f"namespace {namespace}; -A shows all", file=sys.stderr)
    return [*request.rest, *([f"--namespace={namespace}"] if namespace else [])]


def _with_namespace(words: Sequence[str], namespace: str) -> list[str]:
    """The words with the namespace in ``[KIND/]NAME``, as kubectl has it; values of options stay."""
    found, value = [], False
    for word in words:
        *kind, name = word.split("/")
        plain = not value and not word.startswith("-") and len(kind) < 2
        found.append("/".join((*kind, namespace, name)) if plain else word)
        value = word.startswith("-") and "=" not in word and word not in ("--all", "--no-fixes")
    return found


def _own_namespace(cluster: ClusterChoice) -> str:
    """The namespace of the kubeconfig's context, as kubectl takes it."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        contexts, active = list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=cluster.kubeconfig or None
        )
    except (ConfigException, OSError):
        return "default"
    chosen = next((c for c in contexts if c["name"] == cluster.context), active)
    return str((chosen or {}).get("context", {}).get("namespace") or "default")


def _command(arguments: list[str], before: Callable[[], None] | None = None) -> int:
    """Run a command of ``kai-cp`` in this process; its exit status. ``before`` runs first, once the words are
    known to be right.
    """
    from kai_cp.cli.app import command
    from kai_cp.cli.help import Caller

    ended: Callable[..., object] = command.main
    try:
        caller = Caller(before, "kubectl kai-cp -h") if before is not None else None
        ended(args=arguments, prog_name="kubectl kai-cp", obj=caller)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
