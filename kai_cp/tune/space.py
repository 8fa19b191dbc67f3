"""The search space file: which preferences may vary, and which objectives count.

.. code-block:: yaml

    parameters:
      objective.max_moved_gpus_per_admitted_gpu: {low: 0, high: 4}
      solver.seed: {choices: [0, 1, 2]}
    objectives: [admitted, lost, moved]

Contract rules are not settings, so no search can switch one off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kai_cp import files, yaml_text
from kai_cp.settings import describe
from kai_cp.tune.measure import MEASURES

PREFERENCES: Final = ("objective.", "solver.", "time.", "reservations.", "aging.")
"""Settings that may vary begin so; switches that make a plan lawful or not do not."""


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
        return self


class Space(BaseModel):
    """The space to search: ranges by setting path, and the measures to improve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: Annotated[dict[str, Range], Field(min_length=1)]
    objectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("admitted", "lost", "moved")

    @model_validator(mode="after")
    def _known(self) -> Space:
        settings = {setting.path for setting in describe()}
        for path in self.parameters:
            if path not in settings:
                raise ValueError(f"{path}: no such setting; `kai-cp config explain` lists them")
            if not path.startswith(PREFERENCES):
                raise ValueError(f"{path}: only preferences can be tuned ({', '.join(PREFERENCES)}…)")
        for name in self.objectives:
            if name not in MEASURES:
                raise ValueError(f"{name}: no such measure; there are {', '.join(MEASURES)}")
        return self


def _said(kind: str, text: str) -> str:
    """What is wrong with a key, in our words where the library has its own."""
    ours = {"missing": "this key is needed", "extra_forbidden": "unknown key"}
    return ours.get(kind) or text.removeprefix("Value error, ")


def read_space(path: Path) -> Space:
    """The space of a YAML file; raises ``ValueError`` that names file and key."""
    try:
        document: Any = yaml_text.load(files.read_text(path))
        return Space.model_validate(document)
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {yaml_text.why(error)}") from None
    except ValidationError as error:
        said = [(".".join(map(str, e["loc"])), _said(e["type"], e["msg"])) for e in error.errors()]
        lines = [f"{name}: {text}".lstrip(": ") for name, text in said]
        raise ValueError(f"{path}: " + "; ".join(lines)) from None
