"""The records of a benchmark run: immutable, one JSON object per line, with the machine and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from kai_cp import files
from kai_cp_models.plan import Stage

_PACKAGES = ("kai-cp", "ortools", "numpy")


class Record(BaseModel):
    """Base of everything written: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Origin(Record):
    """The machine and the versions behind a result."""

    machine: str
    cores: int
    memory_gib: float
    python: str
    versions: dict[str, str]
    commit: str
    settings: str = ""
    """Short hash of the settings."""


class NetEffect(Record):
    """The net effect of a cycle's decisions, in GPUs (a share counts as its fraction) and in counts.

    ``lost_gpu_hours``: work of stopped pods since the last start of their pod group.
    ``groups_left``: pod groups with waiting pods of which none got a place.
    """

    bound_gpus: float = 0.0
    nominated_gpus: float = 0.0
    lost_gpus: float = 0.0
    lost_gpu_hours: float = 0.0
    moved_gpus: float = 0.0
    moved_pods: int = 0
    evicted_pods: int = 0
    groups_admitted: int = 0
    groups_left: int = 0

    @property
    def admitted_gpus(self) -> float:
        """GPUs that waiting pods get, now or when room is free."""
        return self.bound_gpus + self.nominated_gpus

    @property
    def gained_gpus(self) -> float:
        """GPUs that waiting pods get beyond those that running ones lose."""
        return self.admitted_gpus - self.lost_gpus


class Moment(Record):
    """A better checked answer, found ``seconds`` after the decision began."""

    seconds: float
    admitted_gpus: float
    lost_gpus: float


class AdmissionDifference(Record):
    """The first pod group in the fair order that only one of two answers admits.

    ``turn``: its place in that order, from 1. ``here``: this run admits it, the other does not.
    """

    group: str
    turn: int
    here: bool


class Peer(Record):
    """Another answer to the same case: KAI's, or that of an older run.

    ``outcome`` is None if only the time was recorded; ``seconds`` is None if unknown.
    """

    name: str
    outcome: NetEffect | None
    seconds: float | None = None
    only_here: int = 0
    """Pod groups that only this run admits."""
    only_there: int = 0
    first: AdmissionDifference | None = None
    """None: no difference in the fair order."""


class CaseResult(Record):
    """One case of the suites kai and scale."""

    kind: Literal["case"] = "case"
    suite: str
    case: str
    seed: int | None
    budget_seconds: float
    nodes: int
    running_pods: int
    pending_pods: int
    pending_groups: int
    seconds: dict[str, float]
    """read, prepare, model (orders, greedy places, building models), solve (inside CP-SAT), check, decide
    (prepare to check, as a caller waits for it).

    decide_cpu: processor time of all threads during decide; less than decide where the machine was busy.
    """
    second_cycle_seconds: float | None = None
    """Reading and deciding again in the same process after a change of one percent of the pods."""
    second_cycle_parts: dict[str, float] = Field(default_factory=dict)
    """read, answer: seconds of the second reading, and from its end to the first checked answer."""
    most_gpus: float | None = None
    """No plan gains more: the smaller of what waits in all and what is idle."""
    peak_memory_mib: float
    status: str
    gap: float
    stages: tuple[Stage, ...]
    outcome: NetEffect
    moments: tuple[Moment, ...]
    peer: Peer | None = None
    errors: tuple[str, ...] = ()
    """What the checker found, and failures: any makes the run fail."""
    origin: Origin

    @property
    def second_cycle_share(self) -> float | None:
        """The second cycle as a share of the first, reading included."""
        if self.second_cycle_seconds is None:
            return None
        return self.second_cycle_seconds / (self.seconds["read"] + self.seconds["decide"])

    @property
    def second_answer_share(self) -> float | None:
        """The second cycle's share up to the first checked answer."""
        if not self.second_cycle_parts or not self.moments:
            return None
        return sum(self.second_cycle_parts.values()) / (self.seconds["read"] + self.moments[0].seconds)


class PolicyResult(Record):
    """One run of the openb suite: ``used`` is the share of the GPUs in use at the end, in percent."""

    kind: Literal["policy"] = "policy"
    suite: str = "openb"
    case: str
    policy: str
    seed: int
    used: float
    published: float | None = None
    """Published mean of the same policy, where there is one."""
    moved_pods: int = 0
    most_moved_share: float = 0.0
    """Largest share of the running pods moved within 100 arrivals, in percent."""
    seconds: float
    errors: tuple[str, ...] = ()
    origin: Origin


class BoundResult(Record):
    """Offline bound of an openb list: no placement of the arrivals of ``seed`` uses more."""

    kind: Literal["bound"] = "bound"
    suite: str = "openb"
    case: str
    seed: int
    bound: float
    value: float
    """Of the fractional master problem: how tight the bound is."""
    columns: int
    seconds: float
    origin: Origin


class PromisesKept(Record):
    """How the first promised start of every gang ended (time axis).

    ``broken`` counts by cause, *none* if no cause was recorded. ``open`` ones are due after the end of the
    run. ``idle_gpu_hours`` counts GPUs that were held and idle.
    """

    kept: int
    broken: dict[str, int]
    open: int
    idle_gpu_hours: float

    @property
    def share_without_overrun(self) -> float | None:
        """The share of kept promises, without those broken by a job that overran its declared end; None if
        none.
        """
        others = sum(number for cause, number in self.broken.items() if cause != "Overrun")
        return self.kept / (self.kept + others) if self.kept + others else None


class SimulationResult(Record):
    """One policy on one simulated workload (suite gangs)."""

    kind: Literal["simulation"] = "simulation"
    suite: str = "gangs"
    case: str
    policy: str
    seed: int
    hours: float
    groups: int
    finished: int
    waiting_minutes: dict[str, float]
    """Mean wait until the start by size of the pod group in GPUs."""
    waiting_p95_minutes: dict[str, float]
    longest_wait_minutes: dict[str, float] = Field(default_factory=dict)
    utilisation: float
    evictions: int
    moves: int
    lost_gpu_hours: float
    share_error: float
    """Mean over time of the sum over queues of |allocated - fair share| / cluster."""
    cycles: int
    slowest_cycle_seconds: float
    promises: PromisesKept | None = None
    """None: a workload without reservations."""
    seconds: float
    errors: tuple[str, ...] = ()
    origin: Origin


class MattersResult(Record):
    """Small clusters on which a default scheduler fails, at one budget."""

    kind: Literal["matters"] = "matters"
    suite: str = "matters"
    case: str
    seed: int
    budget_seconds: float
    clusters: int
    improved: int
    """Clusters on which more pods of a priority run, none of a higher one fewer."""
    certified: int
    """Clusters whose answer is proved best."""
    equal_certified: int
    """Of those, where the default scheduler was best already."""
    mean_seconds: float
    errors: tuple[str, ...] = ()
    origin: Origin


Result = CaseResult | PolicyResult | BoundResult | SimulationResult | MattersResult
LINE: TypeAdapter[Result] = TypeAdapter(Annotated[Result, Field(discriminator="kind")])


@cache
def origin(settings: str = "") -> Origin:
    """This machine, the installed versions and the commit of the work tree, if any."""
    return Origin(
        machine=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        python=platform.python_version(),
        versions={name: version(name) for name in _PACKAGES},
        commit=_commit(),
        settings=settings,
    )


def write(path: Path, results: Iterable[Result]) -> None:
    """Append results to a file of JSON lines."""
    with path.open("a", encoding="utf-8") as file:
        for result in results:
            file.write(result.model_dump_json() + "\n")


def read(path: Path) -> Iterator[Result]:
    """The results of a file of JSON lines; raises ``OSError`` and ``ValueError``."""
    for line in files.read_text(path, files.MOST_BYTES).split("\n"):
        if line.strip():
            yield LINE.validate_json(line)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
