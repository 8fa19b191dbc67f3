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
from kai_cp.documents.cycle import Stage

_PACKAGES = ("kai-cp", "ortools", "numpy")


class Record(BaseModel):
    """Base of everything written: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Origin(Record):
    """The machine and the versions behind a result."""

    machine: str
    """Processor."""
    cores: int
    """Cores that the run could use."""
    memory_gib: float
    """Memory of the machine in GiB."""
    python: str
    """Version of Python."""
    versions: dict[str, str]
    """Version by package."""
    commit: str
    """Short hash of the commit; *unknown* outside a work tree."""
    settings: str = ""
    """Short hash of the settings."""


class NetEffect(Record):
    """The net effect of a cycle's decisions, in GPUs (a share counts as its fraction) and in counts."""

    bound_gpus: float = 0.0
    """GPUs of pods that start now."""
    nominated_gpus: float = 0.0
    """GPUs of pods whose place is promised."""
    lost_gpus: float = 0.0
    """GPUs of pods that are stopped and get no other place."""
    lost_gpu_hours: float = 0.0
    """Work of those pods since the last start of their pod group, in GPU-hours."""
    moved_gpus: float = 0.0
    """GPUs of pods that restart elsewhere."""
    moved_pods: int = 0
    """Pods that restart elsewhere."""
    evicted_pods: int = 0
    """Running pods that are stopped; those that restart elsewhere are among them."""
    groups_admitted: int = 0
    """Pod groups of which a waiting pod got a place."""
    groups_left: int = 0
    """Pod groups with waiting pods of which none got a place."""

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
    """Seconds since the decision began."""
    admitted_gpus: float
    """GPUs that waiting pods get."""
    lost_gpus: float
    """GPUs of pods that are stopped and get no other place."""


class AdmissionDifference(Record):
    """The first pod group in the fair order that only one of two answers admits."""

    group: str
    """Pod group: NAMESPACE/NAME."""
    turn: int
    """Its place in the fair order, from 1."""
    here: bool
    """Which of the two admits it; true: this run."""


class Peer(Record):
    """Another answer to the same case: KAI's, or that of an older run."""

    name: str
    """What gave the other answer."""
    outcome: NetEffect | None
    """None: only the time was recorded."""
    seconds: float | None = None
    """Seconds that it took; None: unknown."""
    only_here: int = 0
    """Pod groups that only this run admits."""
    only_there: int = 0
    """Pod groups that only the other answer admits."""
    first: AdmissionDifference | None = None
    """None: no difference in the fair order."""


class CaseResult(Record):
    """One case of the suites kai and scale."""

    kind: Literal["case"] = "case"
    """Kind of the line."""
    suite: str
    """Name of the suite."""
    case: str
    """Name of the case."""
    seed: int | None
    """Seed of the generated cluster; None: a recorded one."""
    budget_seconds: float
    """Seconds that the decision may take."""
    nodes: int
    """Nodes of the cluster."""
    running_pods: int
    """Pods that run before the cycle."""
    pending_pods: int
    """Pods that wait before the cycle."""
    pending_groups: int
    """Pod groups that wait before the cycle."""
    seconds: dict[str, float]
    """read, prepare, model (orders, greedy places, building models), solve (inside CP-SAT), check, decide
    (prepare to check, as a caller waits for it).

    read_cpu, decide_cpu: processor time of all threads meanwhile; less where the machine was busy.
    """
    second_cycle_seconds: float | None = None
    """Reading and deciding again in the same process after a change of one percent of the pods."""
    second_cycle_cpu: float | None = None
    """Processor time of all threads in it."""
    second_cycle_parts: dict[str, float] = Field(default_factory=dict)
    """read, answer: seconds of the second reading, and from its end to the first checked answer."""
    most_gpus: float | None = None
    """No plan gains more: the smaller of what waits in all and what is idle."""
    peak_memory_mib: float
    """Most memory that the process held, in MiB."""
    status: str
    """How good the answer is, as its worst stage says."""
    gap: float
    """Largest gap of a stage; 0 is proof."""
    stages: tuple[Stage, ...]
    """What each action asked the solver, in order."""
    outcome: NetEffect
    """What the plan does."""
    moments: tuple[Moment, ...]
    """Checked answers as they came, where GPUs gained or lost differ from the one before."""
    peer: Peer | None = None
    """Another answer to the same case; None: there is none."""
    errors: tuple[str, ...] = ()
    """What the checker found, and failures: any makes the run fail."""
    origin: Origin
    """Machine and versions."""

    @property
    def second_cycle_share(self) -> float | None:
        """The second cycle as a share of the first, reading included."""
        if self.second_cycle_seconds is None:
            return None
        return self.second_cycle_seconds / (self.seconds["read"] + self.seconds["decide"])

    @property
    def second_cpu_share(self) -> float | None:
        """The second cycle's share of the processor time, reading included."""
        if self.second_cycle_cpu is None:
            return None
        return self.second_cycle_cpu / (self.seconds["read_cpu"] + self.seconds["decide_cpu"])

    @property
    def second_answer_share(self) -> float | None:
        """The second cycle's share up to the first checked answer."""
        if not self.second_cycle_parts or not self.moments:
            return None
        return sum(self.second_cycle_parts.values()) / (self.seconds["read"] + self.moments[0].seconds)


class PolicyResult(Record):
    """One run of the openb suite."""

    kind: Literal["policy"] = "policy"
    """Kind of the line."""
    suite: str = "openb"
    """Name of the suite."""
    case: str
    """Name of the list of pods."""
    policy: str
    """Name of the placement policy."""
    seed: int
    """Seed of the order of arrivals."""
    used: float
    """GPUs in use at the end, in percent of all."""
    published: float | None = None
    """Published mean of the same policy, where there is one."""
    moved_pods: int = 0
    """Pods that were moved in the whole run."""
    most_moved_share: float = 0.0
    """Largest share of the running pods moved within 100 arrivals, in percent."""
    seconds: float
    """Seconds of the run."""
    errors: tuple[str, ...] = ()
    """What the checker found, and failures: any makes the run fail."""
    origin: Origin
    """Machine and versions."""


class BoundResult(Record):
    """Offline bound of an openb list: no placement of the arrivals of ``seed`` uses more."""

    kind: Literal["bound"] = "bound"
    """Kind of the line."""
    suite: str = "openb"
    """Name of the suite."""
    case: str
    """Name of the list of pods."""
    seed: int
    """Seed of the order of arrivals."""
    bound: float
    """GPUs in use at the end, at most, in percent of all."""
    value: float
    """Of the fractional master problem: how tight the bound is."""
    columns: int
    """Patterns of nodes that the master problem has at the end."""
    seconds: float
    """Seconds of the run."""
    origin: Origin
    """Machine and versions."""


class PromisesKept(Record):
    """How the first promised start of every gang ended (time axis)."""

    kept: int
    """Starts that came when promised or earlier, with a tolerance of one tick."""
    broken: dict[str, int]
    """Starts that came later, by cause; *none*: no cause was recorded."""
    open: int
    """Starts that are due after the end of the run."""
    idle_gpu_hours: float
    """GPU-hours that were held and idle."""


class SimulationResult(Record):
    """One policy on one simulated workload (suite gangs)."""

    kind: Literal["simulation"] = "simulation"
    """Kind of the line."""
    suite: str = "gangs"
    """Name of the suite."""
    case: str
    """Name of the workload."""
    policy: str
    """Name of the settings."""
    seed: int
    """Seed of the workload."""
    hours: float
    """Hours that are simulated."""
    groups: int
    """Pod groups of the workload."""
    finished: int
    """Pod groups that ended."""
    waiting_minutes: dict[str, float]
    """Mean wait until the start by size of the pod group in GPUs."""
    waiting_p95_minutes: dict[str, float]
    """95th percentile of the wait in minutes, by size of the pod group in GPUs."""
    longest_wait_minutes: dict[str, float] = Field(default_factory=dict)
    """Longest wait in minutes, by size of the pod group in GPUs."""
    utilisation: float
    """Mean share of the GPUs in use, from 0 to 1."""
    evictions: int
    """Running pods that were evicted; those that were moved are among them."""
    moves: int
    """Pods that were evicted and got another place in the same cycle."""
    lost_gpu_hours: float
    """Work of evicted pods that was lost, in GPU-hours."""
    share_error: float
    """Mean over time of the sum over queues of |allocated - fair share| / cluster."""
    cycles: int
    """Cycles that were decided."""
    slowest_cycle_seconds: float
    """Seconds of the slowest cycle."""
    promises: PromisesKept | None = None
    """None: a workload without reservations."""
    seconds: float
    """Seconds of the run."""
    errors: tuple[str, ...] = ()
    """What the checker found, and failures: any makes the run fail."""
    origin: Origin
    """Machine and versions."""


class MattersResult(Record):
    """Small clusters on which a default scheduler fails, at one budget."""

    kind: Literal["matters"] = "matters"
    """Kind of the line."""
    suite: str = "matters"
    """Name of the suite."""
    case: str
    """Name of the shape."""
    seed: int
    """Seed of the clusters."""
    budget_seconds: float
    """Seconds that a decision may take."""
    clusters: int
    """Clusters that were decided."""
    improved: int
    """Clusters on which more pods of a priority run, none of a higher one fewer."""
    certified: int
    """Clusters whose answer is proved best."""
    equal_certified: int
    """Of those, where the default scheduler was best already."""
    mean_seconds: float
    """Mean seconds of a decision."""
    errors: tuple[str, ...] = ()
    """What the checker found, and failures: any makes the run fail."""
    origin: Origin
    """Machine and versions."""


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
