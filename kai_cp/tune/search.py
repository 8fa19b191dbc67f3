"""Searches settings with Optuna: several objectives, a Pareto front, resumable, shared by workers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import optuna
from optuna.study import StudyDirection
from sqlalchemy.exc import SQLAlchemyError

from kai_cp.decisions import version
from kai_cp.json_types import short_hash
from kai_cp.settings import describe, load
from kai_cp.tune.measure import MEASURES, Measured, mean
from kai_cp.tune.space import Range, Space
from kai_cp_models.settings import Settings

STUDY: Final = "kai-cp"
SEED: Final = 0
REPEATS: Final = 3
"""Runs of the present settings: differences between equal runs, such as seconds, are noise."""
POSTGRESQL: Final = ("postgresql://", "postgres://")
"""URLs that name no driver; psycopg is the one that the extra ``postgresql`` installs."""


Instance = Callable[[Settings], Measured]
"""A snapshot that is decided on, or a day that is simulated."""


@dataclass(frozen=True, slots=True)
class TunedTrial:
    """One trial: settings that differ from the base, and its objectives."""

    number: int
    values: Mapping[str, float]
    overrides: Mapping[str, Any]


class WrongAnswer(RuntimeError):
    """The checker refused a plan; the search stops, because no result could be trusted."""


def study_name(space: Space, base: Settings, snapshots: Mapping[str, str]) -> str:
    """The study's name, unique per search and version, so that no other search continues it. ``snapshots``
    are digests, each with the time as of which it is read."""
    what = [version(), space.model_dump(mode="json"), base.model_dump(mode="json"), dict(snapshots)]
    return f"{STUDY}-{short_hash(what)}"


def search(
    space: Space,
    base: Settings,
    instances: Sequence[Instance],
    *,
    trials: int,
    storage: str,
    name: str,
    report: Callable[[int], None] = lambda _: None,
) -> list[TunedTrial]:
    """Run trials until the study has ``trials`` finished ones (of all workers and runs), and return all of
    them.

    Raises ``ValueError`` if the storage cannot be used.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [
        StudyDirection.MAXIMIZE if MEASURES[o].more else StudyDirection.MINIMIZE for o in space.objectives
    ]
    shared = _storage(storage)
    try:
        study = optuna.create_study(
            storage=shared,
            study_name=name,
            directions=directions,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(
                seed=None if _known(shared, name) else SEED, multivariate=True
            ),
        )
        _trials(study, space)
    except Exception as error:
        # The library's errors on a malformed file have no common base class.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"--storage: study {name} cannot be read: {reason}") from None
    if not study.trials:
        study.enqueue_trial(_present(space, base))

    def objective(trial: optuna.Trial) -> tuple[float, ...]:
        overrides = {path: _suggest(trial, path, values) for path, values in space.parameters.items()}
        settings = with_overrides(base, overrides)
        found = mean([measured(settings) for measured in instances])
        if found.errors:
            raise WrongAnswer(found.errors[0])
        trial.set_user_attr("overrides", overrides)
        report(_finished(study))
        return tuple(found.values[o] for o in space.objectives)

    if _finished(study) < trials:
        callback = optuna.study.MaxTrialsCallback(trials, states=(optuna.trial.TrialState.COMPLETE,))
        study.optimize(objective, callbacks=[callback])
    return _trials(study, space)


def _trials(study: optuna.Study, space: Space) -> list[TunedTrial]:
    """The finished trials. Raises ``ValueError`` for one that cannot belong to this search."""
    found = []
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        if "overrides" not in trial.user_attrs:
            continue
        overrides, values = trial.user_attrs["overrides"], trial.values
        if not isinstance(overrides, dict) or overrides.keys() != space.parameters.keys():
            raise ValueError(f"trial {trial.number} sets something else than the search space names")
        for path, value in overrides.items():
            if not _allows(space.parameters[path], value):
                raise ValueError(f"trial {trial.number}: {path} is outside its range")
        if len(values) != len(space.objectives) or not all(map(math.isfinite, values)):
            raise ValueError(f"trial {trial.number} has no finite value for every objective")
        found.append(TunedTrial(trial.number, dict(zip(space.objectives, values, strict=True)), overrides))
    return found


def _allows(values: Range, value: object) -> bool:
    """Whether a parameter of this range can have the value; integers begin at the integer part of ``low``."""
    if values.choices:
        return value in values.choices
    low, high = math.floor(values.low or 0.0), values.high or 0.0
    return isinstance(value, int | float) and low <= value <= high


def spread(space: Space, base: Settings, instances: Sequence[Instance]) -> dict[str, tuple[float, float]]:
    """The mean of every objective over several decisions with the present settings, and their spread.

    Raises ``WrongAnswer`` if the checker refuses one of them, and ``ValueError`` for an objective that is not
    measured.
    """
    runs = [mean([measured(base) for measured in instances]) for _ in range(REPEATS)]
    for run in runs:
        if run.errors:
            raise WrongAnswer(run.errors[0])
    unknown = [name for name in space.objectives if name not in runs[0].values]
    if unknown:
        raise ValueError(f"objectives: {unknown[0]} is not measured here, but {', '.join(runs[0].values)}")
    values = {name: [run.values[name] for run in runs] for name in space.objectives}
    return {name: (fmean(found), max(found) - min(found)) for name, found in values.items()}


def with_overrides(base: Settings, overrides: Mapping[str, Any]) -> Settings:
    """``base`` with values by dotted path; validated like a file."""
    flat = {s.path: _at(base.model_dump(), s.path) for s in describe()}
    return load(None, {**flat, **overrides})


def _at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document[part]
    return document


def _finished(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


def _storage(url: str) -> optuna.storages.BaseStorage:
    """The storage of a URL. Raises ``ValueError`` that names what is missing or unreachable."""
    for prefix in POSTGRESQL:
        if url.startswith(prefix):
            url = f"postgresql+psycopg://{url.removeprefix(prefix)}"
    try:
        try:
            return optuna.storages.get_storage(url)
        except SQLAlchemyError:
            # If workers start together on an empty database, only one of them can create the tables.
            time.sleep(1)
            return optuna.storages.get_storage(url)
    except ImportError as error:
        hint = " (pip install 'kai-cp[postgresql]')" if url.startswith("postgresql+psycopg:") else ""
        raise ValueError(f"--storage: the driver of this database is not installed{hint}: {error}") from None
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise ValueError(f"--storage: {str(error).splitlines()[0]}") from None


def _known(storage: optuna.storages.BaseStorage, name: str) -> bool:
    return name in optuna.get_all_study_names(storage)


def _present(space: Space, base: Settings) -> dict[str, Any]:
    """The first trial: the base's own values where the space allows them."""
    document = base.model_dump()
    found: dict[str, Any] = {}
    for path, values in space.parameters.items():
        value = _at(document, path)
        if isinstance(value, (list, tuple)):
            # A choice is one text; a list becomes one with commas.
            value = ", ".join(map(str, value))
        if values.choices:
            allowed = value in values.choices
        else:
            allowed = (values.low or 0.0) <= value <= (values.high or 0.0)
        if allowed:
            found[path] = value
    return found


def _suggest(trial: optuna.Trial, path: str, values: Range) -> Any:
    if values.choices:
        return trial.suggest_categorical(path, list(values.choices))
    assert values.low is not None
    assert values.high is not None
    whole = next(s.allowed for s in describe() if s.path == path).startswith("whole")
    if whole:
        return trial.suggest_int(path, int(values.low), int(values.high), log=values.log)
    return trial.suggest_float(path, values.low, values.high, log=values.log)
