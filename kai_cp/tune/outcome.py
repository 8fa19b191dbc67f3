"""The result of a search: the trials beside the present settings, and whether one of them is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kai_cp.report.section import Section
from kai_cp.tune.measure import MEASURES
from kai_cp.tune.search import TunedTrial
from kai_cp.tune.space import Range, Space
from kai_cp_models.settings import Settings

_EQUAL = 0.005
"""Values closer than this share are equal, as in the comparison of files."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``present``: mean and spread by objective. ``front``: trials that no other trial beats in every
    objective, one for each set of values, without those that equal the present settings. ``best``: the first
    of them that is better than the present in the order of the objectives; None: nothing better was found."""

    present: Mapping[str, tuple[float, float]]
    front: tuple[TunedTrial, ...]
    best: TunedTrial | None
    trials: int

    def sentence(self, out: str) -> str:
        """One sentence: what was found, and what the file contains."""
        if self.best is None:
            return (
                f"Nothing better than the present settings was found in {self.trials} trials; "
                f"{out} holds the present settings."
            )
        return f"{out} holds trial {self.best.number}, better than the present settings beyond their spread."


def better(name: str, value: float, than: float, noise: float) -> int:
    """1 if better, -1 if worse, 0 if the difference is within the spread."""
    least = max(noise, _EQUAL * max(abs(value), abs(than)), 1e-9)
    if abs(value - than) <= least:
        return 0
    return 1 if (value > than) == MEASURES[name].more else -1


def choose(space: Space, present: Mapping[str, tuple[float, float]], trials: Sequence[TunedTrial]) -> Choice:
    """The Pareto front, and the best trial in it."""
    now = {name: mean for name, (mean, _) in present.items()}

    def signs(values: Mapping[str, float], beside: Mapping[str, float]) -> tuple[int, ...]:
        return tuple(better(n, values[n], beside[n], present[n][1]) for n in space.objectives)

    def beaten(one: TunedTrial) -> bool:
        beside = [signs(one.values, now), *(signs(one.values, other.values) for other in trials)]
        return any(max(found) <= 0 and min(found) < 0 for found in beside)

    front: list[TunedTrial] = []
    for trial in sorted(trials, key=lambda found: found.number):
        known = [now, *(other.values for other in front)]
        if not beaten(trial) and all(any(signs(trial.values, other)) for other in known):
            front.append(trial)
    ranked = sorted(front, key=lambda found: tuple(-sign for sign in signs(found.values, now)))
    best = None
    for trial in ranked:
        first = next((sign for sign in signs(trial.values, now) if sign), 0)
        if first > 0:
            best = trial
            break
    return Choice(present, tuple(ranked), best, len(trials))


def table(space: Space, choice: Choice) -> Section:
    """The present settings, then the trials that are better in something."""
    names = [f"{MEASURES[name].title} [{MEASURES[name].unit}]" for name in space.objectives]
    first = [
        f"{mean:.2f}" + (f" ±{noise / 2:.2f}" if noise >= 0.01 else "")
        for mean, noise in (choice.present[name] for name in space.objectives)
    ]
    rows: list[tuple[str, ...]] = [("present", *first, *("" for _ in space.parameters))]
    for found in choice.front:
        cells = [f"{found.values[name]:.2f}" for name in space.objectives]
        mark = "*" if found is choice.best else ""
        settings = [_short(found.overrides[name]) for name in space.parameters]
        rows.append((f"trial {found.number}{mark}", *cells, *settings))
    parameters = [name.rpartition(".")[2] for name in space.parameters]
    return Section(
        "The present settings, and trials that are better in something; * is written",
        ("Settings", *names, *parameters),
        rows,
        right=(*names, *parameters),
        fixed=parameters,
    )


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def knobs(space: Space, base: Settings) -> str:
    """The sentence that says how goals decide, and which keys the trials vary."""
    goals = space.parameters.get("objective.goals", Range(choices=base.objective.goals)).choices
    traded = any("+" in str(entry) for entry in goals)
    sums = "; those of a sum are traded against each other by their weights" if traded else ""
    return (
        f"Goals are pursued one after the other{sums}. The keys searched: {', '.join(space.parameters)}. "
        "`kai-cp config explain` says what each does."
    )
