"""The search space file: which preferences may vary, and which objectives count.

.. code-block:: yaml

    parameters:
      objective.max_moved_gpus_per_admitted_gpu: {low: 0, high: 4}
      solver.seed: {choices: [0, 1, 2]}
    objectives: [admitted, lost, moved]

Contract rules are not settings, so no search can switch one off.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from kai_cp import files, yaml_text
from kai_cp.settings import BadSettings, Setting, describe, load, wrong
from kai_cp.tune.measure import MEASURES

PREFERENCES: Final = ("objective.", "solver.", "time.", "reservations.", "aging.")
"""Settings that may vary begin with these; switches that decide what a plan may do do not."""


class Range(BaseModel):
    """Values of one setting: a range of numbers (``log``: evenly by factors), or choices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[bool | int | float | str, ...] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> Range:
        ranged = self.low is not None and self.high is not None
        if ranged == bool(self.choices) or (ranged and float(self.low or 0) > float(self.high or 0)):
            raise ValueError("give low and high (low first), or choices")
        if self.log and float(self.low or 0) <= 0:
            raise ValueError("log needs a low above 0")
        return self


class Space(BaseModel):
    """The space to search: ranges by setting path, and the measures to improve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: Annotated[dict[str, Range], Field(min_length=1)]
    objectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("admitted", "lost", "moved")

    @model_validator(mode="after")
    def _known(self) -> Space:
        settings = {setting.path: setting for setting in describe()}
        for path, values in self.parameters.items():
            if path not in settings:
                raise ValueError(f"{path}: no such setting; {_close(path, settings)}")
            if not path.startswith(PREFERENCES):
                raise ValueError(f"{path}: only preferences can be tuned ({', '.join(PREFERENCES)}…)")
            _accepted(settings[path], values)
        for name in self.objectives:
            if name not in MEASURES:
                raise ValueError(f"{name}: no such measure; there are {', '.join(MEASURES)}")
        return self


def _close(path: str, settings: Iterable[str]) -> str:
    close = get_close_matches(path, settings, n=1)
    return f"did you mean {close[0]}?" if close else "`kai-cp config explain` lists them"


def _accepted(setting: Setting, values: Range) -> None:
    """Raise ``ValueError`` if the setting does not take the ends of the range or a choice."""
    whole, number = (setting.allowed.startswith(word) for word in ("whole number", "number"))
    ends = [end for end in (values.low, values.high) if end is not None]
    if ends and not (whole or number):
        raise ValueError(f"{setting.path}: give choices; it is not a number")
    for value in (*values.choices, *(int(end) if whole else end for end in ends)):
        try:
            load(None, {setting.path: value})
        except BadSettings as problem:
            raise ValueError(str(problem).removeprefix("settings: ")) from None


def _said(problem: ErrorDetails) -> str:
    ours = {"missing": "this key is needed", "extra_forbidden": "unknown key"}
    return ours.get(problem["type"]) or wrong(problem)


def read_space(path: Path) -> Space:
    """The space of a YAML file; raises ``ValueError`` that names file and key."""
    try:
        document: Any = yaml_text.load(files.read_text(path))
        return Space.model_validate(document)
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {yaml_text.why(error)}") from None
    except ValidationError as error:
        said = [(".".join(map(str, e["loc"])), _said(e)) for e in error.errors()]
        lines = [f"{name}: {text}".lstrip(": ") for name, text in said]
        raise ValueError(f"{path}: " + "; ".join(lines)) from None
