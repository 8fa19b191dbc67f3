"""Settings: one YAML file into the engine's frozen records, and what every setting means.

Unknown keys, wrong types and keys given twice are refused with file, line and the key's full path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kai_cp import files, yaml_text
from kai_cp.json_types import short_hash
from kai_cp_models.settings import GoalWeights, Settings, goals_of
from kai_cp_models.shown import shown

_UNITS: Final = {
    "seconds": "s",
    "bytes": "bytes",
    "mib": "MiB",
    "gpus": "GPUs",
    "gpu": "GPUs per GPU",
    "jobs": "pod groups",
    "workers": "threads",
}
_EXPECTED: Final = {
    "model": "expected keys and values",
    "bool": "expected true or false",
    "int": "expected a whole number",
    "float": "expected a number",
    "string": "expected a text",
    "tuple": "expected a list",
    "too": "expected at least one entry",
    "extra": "unknown key",
}
"""Our words for pydantic's errors, by the beginning of the error's type."""


class BadSettings(ValueError):
    """A settings file that cannot be used; each line of the text names file, line and key."""


def load(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings of a YAML file; the defaults without one. Raises ``BadSettings``.

    ``overrides``: values by dotted path (``solver.budget_seconds``); None means not given. ``defaults``: the
    same, for keys that the file does not set.
    """
    lines: dict[str, int] = {}
    document: dict[str, Any] = {}
    if path is not None:
        try:
            text = files.read_text(path)
        except OSError as error:
            raise BadSettings(f"{path}: {yaml_text.why(error)}") from None
        document = _parse(text, str(path), lines)
    given = {key: v for key, v in (defaults or {}).items() if key not in lines}
    instead = {key: v for key, v in (overrides or {}).items() if v is not None}
    given |= instead
    lines = {key: line for key, line in lines.items() if key not in instead}
    for name, value in given.items():
        _put(document, name, value)
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        source = str(path or "settings")
        raise BadSettings("\n".join(_complaints(error, source, lines))) from None


def _parse(text: str, source: str, lines: dict[str, int]) -> dict[str, Any]:
    try:
        node = yaml_text.compose(text)
        document = yaml_text.load(text)
    except yaml.YAMLError as error:
        raise BadSettings(f"{source}: {yaml_text.why(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadSettings(f"{source}: expected keys and values, not {shown(document)}")
    twice = []
    for name, line in _keys(node):
        if name in lines:
            twice.append(f"{source}:{line}: {name}: given twice")
        lines[name] = line
    if twice:
        raise BadSettings("\n".join(twice))
    return document


def _keys(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _keys(value, f"{name}.")


def _put(document: dict[str, Any], name: str, value: Any) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
        if not isinstance(document, dict):
            return  # The file has a value where a section belongs; validation names it.
    document[last] = value


def _complaints(error: ValidationError, source: str, lines: Mapping[str, int]) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        # A number among the parts is the place of an entry in a list; the line is that of the list.
        name = ".".join(part for part in problem["loc"] if isinstance(part, str))
        at = f":{lines[name]}" if name in lines else ""
        if problem["type"] == "extra_forbidden":
            yield f"{source}{at}: {name}: unknown key; {_instead(name)}"
        else:
            yield f"{source}{at}: {name}: {wrong(problem)}"


def wrong(problem: ErrorDetails) -> str:
    """What is wrong with a value of a file, in our words."""
    said = problem["msg"].removeprefix("Value error, ")
    said = _EXPECTED.get(problem["type"].partition("_")[0], said[:1].lower() + said[1:])
    expected = "expected" if problem["type"] == "literal_error" else "expected a number"
    said = said.replace("input should be", expected, 1)
    if not said.startswith(("input", "expected")):
        return said  # A sentence of our own shows the value itself.
    found = problem["input"]
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return said + (", found nothing" if found is None else f", not {found!r}")


def _instead(name: str) -> str:
    """What to write instead of an unknown key."""
    known = [setting.path for setting in describe()]
    if name in known:
        first, *below = name.split(".")
        return f"keys are nested: `{first}: {{{': {'.join(below)}: …{'}' * len(below)}`"
    sections = {path.rpartition(".")[0] for path in known}
    close = get_close_matches(name, known if "." in name else [*sections, *known], n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "`kai-cp config explain` lists all keys"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as ``config explain`` shows it."""

    path: str
    default: Any
    unit: str
    allowed: str
    meaning: str


def describe() -> list[Setting]:
    """Every setting, in the order of the records."""
    return list(_describe(Settings, ""))


def _describe(record: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, field in record.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _describe(inner, f"{prefix}{name}.")
        else:
            # A weight is a number per unit, which its meaning names.
            unit = "" if prefix.endswith("weights.") else _UNITS.get(name.rsplit("_", 1)[-1], "")
            default = field.get_default(call_default_factory=True)
            yield Setting(prefix + name, default, unit, _allowed(field), field.description or "")


def _allowed(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, word):,}"
        for limit in field.metadata
        for word, sign in signs.items()
        if hasattr(limit, word)
    ]
    return f"{_kind(field.annotation)} {', '.join(limits)}".rstrip()


def _kind(kind: Any) -> str:
    """A type in words; of choices, all of them."""
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"list of: {_kind(get_args(kind)[0])}"
    words = {bool: "true, false", int: "whole number", float: "number", str: "text"}
    return words.get(kind, str(kind).replace("typing.", ""))


def as_yaml(settings: Settings) -> str:
    """The settings as a file that ``load`` reads back to the same."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def idle_weights(settings: Settings) -> list[str]:
    """One sentence for each weight that was changed without effect, because its goal is in no sum."""
    objective = settings.objective
    added = {name for entry in objective.goals if len(parts := goals_of(entry)) > 1 for name in parts}
    return [
        f"objective.weights.{name}: has no effect, because objective.goals adds {name} to no other goal"
        for name, field in GoalWeights.model_fields.items()
        if name not in added and objective.weights.of(name) != field.default
    ]


def digest(settings: Settings) -> str:
    """Short hash that names a configuration in logs and records."""
    return short_hash(settings.model_dump(mode="json"))
