"""Runs the suites one after the other, as a stream of results and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kai_cp.bench import peers
from kai_cp.bench.cases import Case, generated_cases, recorded_cases
from kai_cp.bench.progress import ProgressBar
from kai_cp.bench.records import Result
from kai_cp.bench.runner import BenchTask, run
from kai_cp.errors import Unavailable
from kai_cp_models.settings import Settings

Item = TypeVar("Item")

SMOKE_SHAPES: Final = ("fill", "contended", "fragmented", "racks", "mixed", "quiet", "unschedulable")
SMOKE_NODES: Final = (30,)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What to run; an empty tuple leaves the choice to the suite."""

    suites: tuple[str, ...]
    shapes: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    against: Path | None = None
    shared: Path = Path("../shared")
    second_cycle: bool = False
    bound_seconds: float = 60.0
    hours: float = 48.0
    processes: int = 2
    part: tuple[int, int] = (0, 1)
    """Which of how many equal parts of the cases or seeds: index from 0, count."""

    def mine(self, all_of_them: Sequence[Item]) -> Sequence[Item]:
        """The part of the cases that runs here."""
        index, count = self.part
        return all_of_them[index::count]


def run_suites(plan: RunPlan, settings: Settings, bar: ProgressBar) -> Iterator[Result | str]:
    """The results in the order in which they come; a case without a result is a text."""
    for suite in plan.suites:
        if suite in ("kai", "scale", "smoke"):
            yield from _cycles(suite, plan, settings, bar)
        if suite == "openb":
            _expect_trace(plan.shared / "data" / "openb")
            from kai_cp.bench.openb.suite import run_openb
            from kai_cp.bench.openb.trace import SEEDS

            yield from run_openb(
                plan.shared / "data" / "openb",
                plan.shapes,
                plan.mine(plan.seeds or SEEDS),
                bar,
                bound_seconds=plan.bound_seconds,
                processes=plan.processes,
            )
        if suite in ("gangs", "smoke"):
            from kai_cp.simulate.suite import run_gangs

            smoke = suite == "smoke"
            yield from run_gangs(
                settings,
                plan.mine(plan.seeds or (1,)),
                bar,
                hours=1.0 if smoke else plan.hours,
                nodes=() if smoke else plan.nodes,
                names=plan.shapes,
                small=smoke,
            )
        if suite in ("matters", "smoke"):
            from kai_cp.bench.matters import run_matters

            yield from run_matters(
                settings, plan.nodes, plan.mine(plan.seeds or (1,)), bar, small=suite == "smoke"
            )


def _expect_trace(folder: Path) -> None:
    if not folder.is_dir():
        raise Unavailable(
            f"{folder} is not there. The suite openb needs Alibaba's public GPU trace (github.com/alibaba/"
            "clusterdata, cluster-trace-gpu-v2023/csv): name its directory with --shared, as data/openb."
        )


def _cycles(suite: str, plan: RunPlan, settings: Settings, bar: ProgressBar) -> Iterator[Result | str]:
    from kai_cp.settings import digest

    cases = _cases(suite, plan)
    peer = None
    if plan.against is not None:
        peer = peers.directory(plan.against)
    elif suite == "kai":
        peer = peers.recorded(plan.shared / "bench")
    name = digest(settings)
    cases = plan.mine(cases)
    bar.expect(len(cases))
    for case in cases:
        bar.begin(case.name)
        theirs = None
        if peer is not None and (case.name in peer.deeds or case.name in peer.seconds):
            theirs = (peer.name, peer.deeds.get(case.name), peer.seconds.get(case.name))
        yield run(BenchTask(case, settings, name, theirs, plan.second_cycle))


def _cases(suite: str, plan: RunPlan) -> Sequence[Case]:
    if suite == "kai":
        folder = plan.shared / "bench" / "snapshots"
        if not folder.is_dir():
            raise Unavailable(
                f"{folder} is not there. The suite kai needs clusters that a KAI-Scheduler decided on: name "
                "their directory with --shared, or take --suite scale, which generates its own."
            )
        return recorded_cases(folder, plan.shapes, plan.nodes)
    if suite == "smoke":
        return generated_cases(plan.shapes or SMOKE_SHAPES, plan.nodes or SMOKE_NODES, plan.seeds or (1,))
    return generated_cases(plan.shapes, plan.nodes, plan.seeds or (1,))
