"""Reads a snapshot: from the input that a user names to the engine's records."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from kai_cp.decisions import BadDecisions, from_rfc3339, recorded
from kai_cp.reader.container import Loaded, Source, UnreadableSnapshot, label_of, load, load_items, sources
from kai_cp.reader.document import Items
from kai_cp_models.collection import no_collection
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot

_OPTIONS: Final = ".options.json"
"""``NAME.options.json`` beside a snapshot belongs to NAME and is not a snapshot."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").fullmatch


def inputs(arguments: Iterable[str]) -> tuple[list[Source], list[str]]:
    """The inputs that the arguments name, and a line for every argument that names none."""
    usable: list[str] = []
    problems: list[str] = []
    for argument in arguments:
        try:
            sources([argument])
        except UnreadableSnapshot as problem:
            problems.append(str(problem))
        else:
            usable.append(argument)
    return [source for source in sources(usable) if not source.path.endswith(_OPTIONS)], problems


def read(
    source: str | bytes, *, now: float | None, settings: Settings, usage: Mapping[str, Any] | None = None
) -> tuple[Snapshot, str]:
    """The snapshot of a path, of ``-`` or of bytes, and its SHA-256; raises ``UnreadableSnapshot``,
    also for a ``usage`` of queues that are not there.

    ``now``: the time at which it is read; None: the time at which it was taken.
    """
    from kai_cp.reader.snapshot import parse

    with no_collection(for_good=True):
        given = load_items(source, **_limits(settings))
        if now is None:
            now = as_of(source, given.raw)
        snapshot = parse(
            given.raw,
            now=now,
            usage=usage,
            limits=settings.limits,
            user_label=settings.users.label,
            use_up=True,
        )
    unknown = sorted(set(usage or ()) - snapshot.queue_by_name.keys())
    if unknown:
        raise UnreadableSnapshot(
            f"{label_of(source)}: --usage names queue {unknown[0]}, which the snapshot does not have"
        )
    return snapshot, given.sha256


def loaded(source: str | bytes | Path, settings: Settings) -> Loaded:
    """The raw snapshot of a path, of ``-`` or of bytes, read within the limits of the settings."""
    return load(source, **_limits(settings))


def _limits(settings: Settings) -> dict[str, int]:
    return {"max_bytes": settings.max_snapshot_bytes, "memory_bytes": settings.limits.memory_bytes}


def as_of(source: str | bytes | Path, raw: Mapping[str, Any]) -> float:
    """The time as of which a snapshot is read if no other is named, so that every command sees the same
    cluster.

    It is the time of the cycle that is recorded beside the snapshot, else the time at which it was taken,
    else the present second.
    """
    return decided_at(source) or taken_at(raw) or float(int(time.time()))


def decided_at(source: str | bytes | Path) -> float | None:
    """The time of the cycle whose ``decisions.json`` is beside the snapshot in a zip, if there is one."""
    if not isinstance(source, bytes) and not Path(source).is_file():
        return None  # A pipe is read once, and opening it again may wait forever.
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        return from_rfc3339(orjson.loads(recorded(file))["now"])
    except (OSError, BadDecisions, KeyError, TypeError, ValueError):
        return None


def taken_at(raw: Mapping[str, Any]) -> float | None:
    """When a snapshot was taken: the newest past time in it.

    Only times in metadata and status count. Annotations do not, because users may write any time into them;
    neither do times to come (a pod that is being deleted says when it will be gone at the latest). None: it
    contains no time.
    """
    newest, clock = None, time.time()
    for objects in raw["rawObjects"].values():
        for item in objects if isinstance(objects, list | Items) else ():
            for text in _times(item.get("metadata"), item.get("status")) if isinstance(item, dict) else ():
                if newest is None or text > newest:
                    with suppress(ValueError):
                        newest = text if from_rfc3339(text) <= clock else newest
    return None if newest is None else from_rfc3339(newest)


def _times(*parts: Any) -> Iterator[str]:
    """Every time in Kubernetes' notation below these objects; such texts compare like the times they stand
    for."""
    stack = list(parts)
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            for key, value in part.items():
                if isinstance(value, dict | list) and key != "annotations":
                    stack.append(value)
                elif isinstance(value, str) and key != "deletionTimestamp" and _TIME(value):
                    yield value
        elif isinstance(part, list):
            stack += part
