"""The findings of ``kai-cp migrate``: settings that are taken over, that differ, and that are dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp.json_types import Document, Json, short_hash
from kai_cp.migrate.table import (
    ADMISSION,
    CONFIG,
    CONTROLLERS,
    HELM,
    HELM_NOT,
    PARTS,
    SHARD,
    VALUES,
    MigrationRow,
)
from kai_cp.object_names import LONGEST_LABEL
from kai_cp.reader.fields import Malformed, object_at, text_at

_LONGEST: Final = LONGEST_LABEL - len("kai-cp-scheduler-")
"""The most letters of a shard's name in the chart, in a release called ``kai-cp``."""
_SECTIONS: Final = frozenset(key.partition(".")[0] for key in (*HELM, *HELM_NOT))
"""The sections of KAI's Helm values."""
USUAL: Final = ("podgrouper", "podgroup-controller", "queue-controller")


@dataclass(slots=True)
class Migration:
    """The findings: ``values`` of our chart, ``flags`` by process, and lists with one line per setting."""

    values: dict[str, Any] = field(default_factory=lambda: {"mode": "observe"})
    flags: dict[str, dict[str, str]] = field(default_factory=lambda: {CONTROLLERS: {}, ADMISSION: {}})
    controllers: list[str] = field(default_factory=lambda: list(USUAL))
    differs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The findings as JSON."""
        return {
            "schema": "migration/1",
            "values": self.values,
            "controllers": self.command(CONTROLLERS),
            "admission": self.command(ADMISSION),
            "differs": self.differs,
            "notTakenOver": self.left,
            "notRead": self.unread,
        }

    def command(self, process: str) -> list[str]:
        """The command line of one of our processes."""
        found = [process]
        if process == CONTROLLERS:
            found += ["--leader-elect", f"--controllers={','.join(self.controllers)}"]
        for name, value in sorted(self.flags[process].items()):
            if value in ("true", "false"):
                found.append(f"--{name}" if value == "true" else f"--no-{name}")
            else:
                found.append(f"--{name}={value}")
        return found


def migrate(documents: Sequence[tuple[str, Document]]) -> Migration:
    """Read Configs, SchedulingShards and Helm values (without a kind), each with where it is from."""
    found = Migration()
    shards: list[dict[str, Any]] = []
    for where, document in documents:
        kind = document.get("kind")
        try:
            if kind == "Config":
                _config(found, where, object_at(document, "spec"))
            elif kind == "SchedulingShard":
                shards.append(_shard(found, where, document))
            elif kind is None and (not document or not _SECTIONS.isdisjoint(document)):
                _helm(found, where, document)
            else:
                what = "this" if kind is None else f"a {kind}"
                found.unread.append(f"{where}: {what} is neither Config, SchedulingShard nor Helm values")
        except Malformed as problem:
            found.unread.append(f"{where}: {problem}")
    if shards:
        found.values["shards"] = shards
    return found


def leaves(document: Document, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of leaves, without empty objects and nulls."""
    for key, value in document.items():
        where = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from leaves(value, where)
        elif value is not None:
            yield where, value


def _settings(
    document: Document, table: Mapping[str, MigrationRow], path: str = ""
) -> Iterator[tuple[str, MigrationRow | None, Any]]:
    """Every setting with its row; a row covers what is below it, unless something there has its own."""
    for key, value in document.items():
        where = f"{path}.{key}" if path else str(key)
        row = _row(table, where)
        deeper = any(name.startswith(f"{where}.") for name in table)
        if value is None or value == {}:
            continue
        if isinstance(value, Mapping) and (row is None or deeper):
            for found in _settings(value, table, where):
                yield found if found[1] is not None or row is None else (found[0], row, found[2])
        else:
            yield where, row, value


def _row(table: Mapping[str, MigrationRow], path: str) -> MigrationRow | None:
    return table.get(path) or table.get(".".join(["*", *path.split(".")[1:]]))


def _config(found: Migration, where: str, spec: Json) -> None:
    for path, row, value in _settings(spec, CONFIG):
        part, _, rest = path.partition(".")
        if rest == "service.enabled":
            _switch(found, part, on=bool(value))
        elif row is None:
            found.unread.append(f"{where}: spec.{path}: not known to this version")
        elif not row.targets:
            found.left.append(f"{path}: {row.note}")
        else:
            _move(found, path, row, value)


def _switch(found: Migration, part: str, *, on: bool) -> None:
    name = PARTS.get(part)
    if name is not None:
        others = [one for one in found.controllers if one != name]
        found.controllers = [*others, name] if on else others
    elif part == "binder":
        _set(found.values, "binder.enabled", on)
    elif not on:
        found.differs.append(f"{part} is switched off: do not install ours")


def _move(found: Migration, path: str, row: MigrationRow, value: Any) -> None:
    for place, name in row.targets:
        if place != VALUES:
            found.flags[place][name] = _written(value)
        elif name == "imagePullSecrets":
            listed = found.values.setdefault(name, [])
            names = value if isinstance(value, list) else [value]
            listed += [{"name": one} for one in names if {"name": one} not in listed]
        else:
            _set(found.values, name, value)
    if row.note:
        found.differs.append(f"{path}: {row.note}")


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={entry}" for key, entry in value.items())
    return str(value)


def _set(values: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    for key in way:
        values = values.setdefault(key, {})
    values[last] = value


def _shard(found: Migration, where: str, document: Document) -> dict[str, Any]:
    name = text_at(object_at(document, "metadata"), "name", "metadata")
    spec = object_at(document, "spec")
    for key, value in spec.items():
        row = SHARD.get(key)
        if row is None:
            found.unread.append(f"{where}: spec.{key}: not known to this version")
        elif row.note != "=" and value is not None:
            found.left.append(f"shard {name}: {key}: {row.note}")
    found.differs += [f"shard {name}: {problem}" for problem in _shard_arguments(spec)]
    usage = object_at(spec, "usageDBConfig", "spec")
    if usage.get("clientType") and not (usage.get("connectionString") or usage.get("connectionStringEnvVar")):
        found.differs.append(
            f"shard {name}: usageDBConfig names no connectionString, which KAI's operator fills in: write "
            "your Prometheus's address there"
        )
    short = name
    if len(name) > _LONGEST:
        short = f"{name[: _LONGEST - 13].rstrip('-.')}-{short_hash(name)}"
        found.differs.append(f"shard {name}: its scheduler is called {short}: the chart's names are labels")
    shard: dict[str, Any] = {"name": short, "schedulingShard": name}
    pool = text_at(spec, "partitionLabelValue", "spec")
    return {**shard, "nodePool": pool} if pool else shard


def _shard_arguments(spec: Json) -> Iterator[str]:
    for key in object_at(spec, "args", "spec"):
        yield f"args {key}={spec['args'][key]}: add it to the shard's extraArgs if kai-cp scheduler has it"


def _helm(found: Migration, where: str, values: Document) -> None:
    config: dict[str, Any] = {}
    shard: dict[str, Any] = {}
    for path, value in leaves(values):
        name = _longest(HELM, path)
        if name is not None:
            target = HELM[name] + path[len(name) :]
            if target.startswith("shard:"):
                _set(shard, target.removeprefix("shard:"), value)
            else:
                _set(config, target, value)
            continue
        other = _longest(HELM_NOT, path)
        if other is not None:
            found.left.append(f"{path}: {HELM_NOT[other]}")
        else:
            found.left.append(f"{path}: has no counterpart")
    if isinstance(shard.get("placementStrategy"), str):
        strategy = shard["placementStrategy"]
        shard["placementStrategy"] = {"gpu": strategy, "cpu": strategy}
    _config(found, where, config)
    if shard:
        listed = ", ".join(path for path, _ in leaves(shard))
        found.differs.append(f"{listed}: write them into SchedulingShard default, which they fill")


def _longest(table: Mapping[str, str], path: str) -> str | None:
    parts = path.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in table), None)
