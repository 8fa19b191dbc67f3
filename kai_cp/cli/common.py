"""Shared by several commands: read options and inputs, and end with a clear message."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from kai_cp.reader.container import Loaded, Source
    from kai_cp.report.select import Selection
    from kai_cp_models.settings import Settings
    from kai_cp_models.snapshot import Snapshot

BAD_INPUT: Final = 1
"""A file, an object or an answer is bad; standard error names it."""
WRONG_USAGE: Final = 2
"""A command, an option or a settings file is wrong."""
MISSING: Final = 3
"""Something outside is missing: a cluster, a right, an optional package, space on the disk."""
BUG: Final = 4
"""kai-cp itself failed."""
UNREACHABLE: Final = 5
"""The API server cannot be reached."""
REFUSED: Final = 6
"""The API server refuses the credentials."""
FORBIDDEN: Final = 7
"""A right is missing."""
NOT_RUNNING: Final = 8
"""No scheduler of ours answers."""
INTERRUPTED: Final = 130
"""Stopped by Ctrl-C, as shells have it."""
OFFLINE: Final = {"solver.budget_seconds": 30.0}
"""Defaults for commands that decide about a file: no scheduling period limits them."""


def complain(text: str) -> None:
    """Write one or a few lines to standard error."""
    from kai_cp.printable import one_line

    print("\n".join(map(one_line, f"kai-cp: {text}".split("\n"))), file=sys.stderr, flush=True)


def fail(text: str, status: int) -> NoReturn:
    """Write a message to standard error and end the program."""
    complain(text)
    raise typer.Exit(status)


def settings_or_exit(
    path: Path | None, overrides: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from file and options, with the memory limit applied. Wrong settings end the program; settings
    without effect are named.

    ``defaults`` hold where neither file nor option gives a value.
    """
    from kai_cp.memory import bound
    from kai_cp.settings import BadSettings, idle_weights, load

    options = {name: f"--{name.rpartition('.')[2].removesuffix('_seconds')}" for name in overrides}
    for name, value in overrides.items():
        if isinstance(value, float) and not math.isfinite(value):
            fail(f"{options[name]}: {value} is not an amount", WRONG_USAGE)
    try:
        settings = load(path, overrides, defaults)
    except BadSettings as error:
        said = str(error)
        for name, option in options.items():
            said = said.replace(f"{path or 'settings'}: {name}: ", f"{option}: ")
        fail(said, WRONG_USAGE)
    for said in idle_weights(settings):
        complain(f"{path or 'settings'}: {said}")
    bound(settings.limits.memory_bytes)
    return settings


def instant_or_exit(text: str | None) -> float | None:
    """The instant of ``--now``; None without it, which means the time at which the snapshot was taken."""
    from kai_cp.decisions import from_rfc3339

    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except ValueError:
        fail(f"--now: {text!r} is not an RFC 3339 time such as 2026-11-20T12:00:00Z", WRONG_USAGE)


def seconds_or_exit(option: str, seconds: float) -> float:
    """The value of an option that limits time; anything but a positive number ends the program."""
    if not (math.isfinite(seconds) and seconds > 0):
        fail(f"{option}: {seconds:g} is not a number of seconds above 0", WRONG_USAGE)
    return seconds


def part_or_exit(text: str | None) -> tuple[int, int]:
    """The part that ``--part I/N`` names; everything by default."""
    if text is None:
        return 0, 1
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        fail(f"--part: {text!r} is not a part such as 0/8, counted from 0", WRONG_USAGE)
    return int(index), int(count)


def writable_or_exit(option: str, path: Path | None) -> None:
    """Check that a file can be written before the work on its content begins."""
    if path is None:
        return
    new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        fail(f"{option}: {path}: {error.strerror or error}", WRONG_USAGE)
    if new:
        path.unlink()


def usage_or_exit(path: Path | None) -> Mapping[str, Any] | None:
    """The content of ``--usage``: shares from 0 to 1 by queue and resource; None without a path."""
    found = mapping_or_exit(path, "--usage", "queue names with their usage")
    for queue, shares in (found or {}).items():
        if not isinstance(shares, dict):
            fail(f"--usage: {path}: {queue}: expected shares by resource, such as {{gpu: 0.3}}", WRONG_USAGE)
        for resource, value in shares.items():
            where = f"--usage: {path}: {queue}.{resource}"
            if resource not in ("cpu", "memory", "gpu"):
                fail(f"{where}: unknown resource; cpu, memory or gpu", WRONG_USAGE)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                fail(f"{where}: {value!r} is not a share of the cluster from 0 to 1", WRONG_USAGE)
    return found


def mapping_or_exit(path: Path | None, option: str, content: str) -> Mapping[str, Any] | None:
    """The mapping in a YAML or JSON file, which should have this content; None without a path."""
    import yaml

    from kai_cp import files, yaml_text

    if path is None:
        return None
    try:
        document = yaml_text.load(files.read_text(path))
    except (OSError, yaml.YAMLError) as error:
        fail(f"{option}: {path}: {yaml_text.why(error)}", WRONG_USAGE)
    if not isinstance(document, dict):
        fail(f"{option}: {path}: expected {content}", WRONG_USAGE)
    return document


def selected_or_exit(
    selection: Selection,
    document: Mapping[str, Any],
    snapshot: str,
    known: Callable[[], Collection[str]],
    *,
    alone: bool = True,
) -> None:
    """Name the parts of a selection that match nothing; a queue or pod group that the only snapshot lacks
    ends the program.

    ``known``: its pod groups and pods, as ``NAMESPACE/NAME``.
    """
    sentences, missing = selection.unused(document, snapshot, known)
    for sentence in sentences:
        complain(sentence)
    if missing and alone:
        raise typer.Exit(WRONG_USAGE)


def source_or_exit(argument: str) -> Source:
    """The one snapshot that an argument names; none or several end the program."""
    from kai_cp.reading import inputs

    sources, problems = inputs([argument])
    if problems:
        fail(problems[0], BAD_INPUT)
    if len(sources) != 1:
        fail(f"{argument}: holds {len(sources)} snapshots; name one of them", WRONG_USAGE)
    return sources[0]


def file_or_exit(argument: str, settings: Settings) -> str:
    """The one snapshot that an argument names, as a file that can be read again. The content of a pipe or of
    standard input is kept until the program ends."""
    import atexit
    import shutil
    import tempfile

    from kai_cp import files
    from kai_cp.reader.container import call, label_of

    source = source_or_exit(argument)
    if source.path != files.STDIN and not Path(source.path).is_fifo():
        return source.path
    try:
        content = files.read(source.path, settings.max_snapshot_bytes)
    except OSError as error:
        fail(f"{argument}: {error.strerror or error}", BAD_INPUT)
    folder = tempfile.mkdtemp(prefix="kai-cp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = Path(folder, source.name)
    kept.write_bytes(content)
    call(str(kept), label_of(source.path))
    return str(kept)


def loaded_or_exit(path: Path | str, settings: Settings) -> Loaded:
    """A raw snapshot, read within the limits of the settings."""
    from kai_cp.files import within
    from kai_cp.reader.container import UnreadableSnapshot
    from kai_cp.reading import loaded

    try:
        with within(settings.limits.read_seconds, path):
            return loaded(path, settings)
    except UnreadableSnapshot as problem:
        fail(str(problem), BAD_INPUT)


def snapshot_or_exit(
    argument: str, now: float | None, settings: Settings, usage: Mapping[str, Any] | None = None
) -> tuple[Snapshot, str, str]:
    """The one snapshot that an argument names, its name and its SHA-256."""
    from kai_cp.files import within
    from kai_cp.reader.container import UnreadableSnapshot
    from kai_cp.reading import read

    source = source_or_exit(argument)
    try:
        with within(settings.limits.read_seconds, source.path):
            snapshot, digest = read(source.path, now=now, settings=settings, usage=usage)
    except UnreadableSnapshot as problem:
        fail(str(problem), BAD_INPUT)
    warn_if_empty(source.path, len(snapshot.nodes), len(snapshot.pods))
    return snapshot, source.name, digest


def warn_if_empty(path: str, nodes: int, pods: int) -> None:
    """Say on standard error that a snapshot without nodes or pods is most likely the wrong file."""
    missing = [word for word, count in (("nodes", nodes), ("pods", pods)) if not count]
    if missing:
        complain(f"{path}: the snapshot has no {' and no '.join(missing)}; is it the right one?")
