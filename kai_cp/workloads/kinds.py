"""The table of workload kinds, with rows that a file can hold (10.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path as File
from typing import Any, Final, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kai_cp import yaml_text
from kai_cp.files import read_text
from kai_cp.settings import wrong
from kai_cp.workloads.items import Path, path

Shape: TypeAlias = Literal[
    "", "pod", "job", "cronjob", "pytorch", "mpi", "ray", "jobset", "lws", "grove", "knative", "runai-job"
]
TRAIN: Final = "train"


class BadKinds(ValueError):
    """An unusable file of kinds; the text names the file and the field."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles as a map at path ``at``, each with ``replicas``; the map must have those in ``required``."""

    at: Path
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KindPart:
    """A subgroup of the pods that have all labels of ``pods``. The first existing path of ``min_member`` is
    its minimum.

    ``template`` is the path of the pod template whose annotations may constrain its topology.
    """

    name: str
    pods: Mapping[str, str]
    min_member: tuple[Path, ...] = ()
    template: Path | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One row.

    ``shape`` is the function for what the other fields cannot express. With ``look_through`` the object below
    decides, with this object's labels and annotations. With ``chain`` the labels of owners in between count
    too. With ``required`` a missing ``min_member`` is an error.
    """

    group: str
    name: str
    versions: tuple[str, ...] = ()
    shape: Shape = ""
    look_through: bool = False
    group_per: Literal["owner", "pod"] = "owner"
    priority_class: str = TRAIN
    chain: bool = False
    min_member: tuple[Path, ...] = ()
    required: bool = False
    roles: Roles | None = None
    parts: tuple[KindPart, ...] = ()
    cluster: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields of the object that the row names."""
        return (*self.min_member, *(p for part in self.parts for p in part.min_member), *self.cluster)

    @property
    def reads_all(self) -> bool:
        """Whether the grouper needs more of the object than its metadata."""
        inner = any(found.keys[0] != "metadata" for found in self.paths)
        return inner or self.roles is not None or self.shape in READ_ALL


READ_ALL: Final = frozenset(("pytorch", "mpi", "ray", "jobset", "lws", "runai-job"))
DEFAULT: Final = Kind("", "", chain=True)
"""Any kind without a row."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Rows by kind; the first match counts. A row without versions holds for every version."""

    rows: tuple[Kind, ...] = ()
    _named: Mapping[tuple[str, str], list[Kind]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named: dict[tuple[str, str], list[Kind]] = {}
        for row in self.rows:
            named.setdefault((row.group, row.name), []).append(row)
        object.__setattr__(self, "_named", named)

    def of(self, group: str, version: str, name: str) -> Kind | None:
        """The row of a kind at the top of the owners."""
        rows = self._named.get((group, name), ())
        return next((row for row in rows if not row.versions or version in row.versions), None)

    def below(self, group: str, version: str, name: str) -> Kind | None:
        """The row of a kind below a skipped one.

        As in KAI, the walk ends at a kind that is itself skipped in every version.
        """
        row = self.of(group, version, name)
        return None if row is not None and row.look_through and not row.versions else row


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _paths(value: Any) -> Any:
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list):
        for entry in values:
            if isinstance(entry, str):
                path(entry)
    return values


class _RolesRow(_Row):
    at: str
    required: list[str] = []

    @field_validator("at")
    @classmethod
    def _path(cls, value: str) -> str:
        path(value)
        return value


class _PartRow(_Row):
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    pods: dict[str, str] = Field(min_length=1)
    minMember: list[str] = []
    template: str = ""

    _check = field_validator("minMember", mode="before")(_paths)

    @field_validator("template")
    @classmethod
    def _path(cls, value: str) -> str:
        if value:
            path(value)
        return value


class _KindRow(_Row):
    kind: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9]*(\.[a-z0-9.-]+)?$")
    versions: list[str] = []
    shape: Shape = ""
    lookThrough: bool = False
    groupPer: Literal["owner", "pod"] = "owner"
    priorityClass: str = TRAIN
    chain: bool = False
    minMember: list[str] = []
    required: bool = False
    roles: _RolesRow | None = None
    subGroups: list[_PartRow] = []
    cluster: list[str] = []

    _check = field_validator("minMember", "cluster", mode="before")(_paths)

    def kind_row(self) -> Kind:
        """The row as the grouper uses it."""
        name, _, group = self.kind.partition(".")
        roles = Roles(path(self.roles.at), tuple(self.roles.required)) if self.roles else None
        return Kind(
            group,
            name,
            tuple(self.versions),
            self.shape,
            self.lookThrough,
            self.groupPer,
            self.priorityClass,
            self.chain,
            tuple(map(path, self.minMember)),
            self.required,
            roles,
            tuple(
                KindPart(
                    part.name,
                    part.pods,
                    tuple(map(path, part.minMember)),
                    path(part.template) if part.template else None,
                )
                for part in self.subGroups
            ),
            tuple(map(path, self.cluster)),
        )


class _File(_Row):
    kinds: list[_KindRow]
    reads: list[str] = []


def parse_kinds(text: str, where: str) -> tuple[Kind, ...]:
    """The rows of a file. Raises ``BadKinds`` that names ``where`` and the field."""
    try:
        document = yaml_text.load(text)
        return tuple(row.kind_row() for row in _File.model_validate(document).kinds)
    except yaml.YAMLError as problem:
        raise BadKinds(f"{where}: {yaml_text.why(problem)}") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise BadKinds(": ".join(filter(None, (where, at, wrong(first))))) from None


def _builtin() -> str:
    return files("kai_cp.workloads").joinpath("kinds.yaml").read_text("utf-8")


@lru_cache(maxsize=1)
def builtin_kinds() -> Kinds:
    """The rows that come with the program."""
    return Kinds(parse_kinds(_builtin(), "kinds.yaml"))


def builtin_reads() -> list[tuple[str, str]]:
    """The (group, kind) of all objects except pods that the built-in rows make the grouper read."""
    between = _File.model_validate(yaml.safe_load(_builtin())).reads
    found = {(row.group, row.name) for row in builtin_kinds().rows if row.group}
    for text in between:
        name, _, group = text.partition(".")
        found.add((group, name))
    return sorted(found)


def load_kinds(added: Iterable[File]) -> Kinds:
    """The rows of the operator's files before the built-in rows. Raises ``BadKinds`` for an unreadable
    file.
    """
    rows: list[Kind] = []
    for file in added:
        try:
            rows += parse_kinds(read_text(file), str(file))
        except OSError as problem:
            raise BadKinds(f"{file}: {yaml_text.why(problem)}") from None
    return Kinds((*rows, *builtin_kinds().rows))
