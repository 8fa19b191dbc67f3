"""Random jobs: a pod group with its subgroups and pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.support import objects as raw
from tests.support.floor import Ask

MIGS: Final = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb")


@dataclass
class Leaf:
    """A pod set."""

    name: str
    minimum: int
    count: int
    parent: str | None = None

    def pod_name(self, job: str, index: int) -> str:
        """The name of one of its pods."""
        return f"{job}-{self.name}-{index}" if self.name else f"{job}-{index}"


@dataclass
class Job:
    """A pod group to be written."""

    name: str
    queue: str
    ask: Ask
    leaves: list[Leaf]
    namespace: str = "default"
    priority: str = "train"
    preemptibility: str = ""
    age: float = 100.0
    sets: list[tuple[str, str | None, int | None]] = field(default_factory=list)
    """Subgroups with children: (name, parent, minSubGroup)."""
    least: int | None = None
    """minSubGroup of the root."""
    required: str = ""
    preferred: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    keep_apart: bool = False
    task_priorities: bool = False

    @property
    def firm(self) -> bool:
        """Whether the job cannot be preempted."""
        if self.preemptibility:
            return self.preemptibility == "non-preemptible"
        return raw.PRIORITIES[self.priority] >= 100

    def spec(self) -> raw.Object:
        """The spec of its PodGroup."""
        spec: raw.Object = {"queue": self.queue, "priorityClassName": self.priority, **self.extra}
        if self.preemptibility:
            spec["preemptibility"] = self.preemptibility
        if self.required or self.preferred:
            constraint = {"topology": "fabric"}
            if self.required:
                constraint["requiredTopologyLevel"] = (
                    "rack" if self.required.endswith("rack") else self.required
                )
            if self.preferred:
                constraint["preferredTopologyLevel"] = self.preferred
            spec["topologyConstraint"] = constraint
        if not self.leaves[0].name:
            spec["minMember"] = self.leaves[0].minimum
            return spec
        groups: list[raw.Object] = []
        for name, parent, least in self.sets:
            groups.append({"name": name} | _given(parent=parent, minSubGroup=least))
        for leaf in self.leaves:
            groups.append({"name": leaf.name, "minMember": leaf.minimum} | _given(parent=leaf.parent))
        return spec | {"subGroups": groups} | _given(minSubGroup=self.least)

    def pods(self) -> list[raw.Object]:
        """Its pods, all pending."""
        return [self._pod(leaf, i) for leaf in self.leaves for i in range(leaf.count)]

    def _pod(self, leaf: Leaf, index: int) -> raw.Object:
        ask = self.ask
        requests = {"cpu": f"{ask.milli_cpus}m", "memory": f"{ask.mib}Mi"}
        if ask.gpus:
            requests["nvidia.com/gpu"] = str(ask.gpus)
        if ask.mig:
            requests[ask.mig] = "1"
        name = leaf.pod_name(self.name, index)
        one = raw.pod(self.namespace, name, self.age - index % 3, requests, self.name)
        notes, labels, spec = one["metadata"]["annotations"], one["metadata"]["labels"], one["spec"]
        labels["app"] = self.name
        if leaf.name:
            labels["kai.scheduler/subgroup-name"] = leaf.name
        if self.task_priorities:
            labels["kai.scheduler/task-priority"] = str(index)
        if ask.portion:
            notes["gpu-fraction"] = f"{ask.portion / 100:g}"
        if ask.gpu_mib:
            notes["gpu-memory"] = str(ask.gpu_mib)
        if ask.shares and ask.devices > 1:
            notes["gpu-fraction-num-devices"] = str(ask.devices)
        if ask.ports:
            spec["containers"][0]["ports"] = [{"containerPort": p, "hostPort": p} for p in ask.ports]
        if ask.selector:
            spec["nodeSelector"] = dict(ask.selector)
        if ask.tolerates:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.keep_apart:
            selector = {"matchLabels": {"app": self.name}}
            term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return one


def _given(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def draw_job(rng: Random, features: frozenset[str], name: str, queue: str) -> Job:
    """A job with random features."""
    job = Job(name, queue, _ask(rng, features), [], age=float(rng.randint(5, 50_000)))
    if "namespaces" in features and rng.random() < 0.3:
        job.namespace = "team"
    if "priorities" in features:
        job.priority = rng.choice(("low", "train", "train", "build-preemptible"))
    if "nonpreemptible" in features and rng.random() < 0.3:
        job.priority = rng.choice(("build", "inference"))
        if rng.random() < 0.3:
            job.preemptibility = "preemptible"
        elif rng.random() < 0.3:
            job.priority, job.preemptibility = "train", "non-preemptible"
    if "delay" in features and rng.random() < 0.3:
        job.extra["preemptionDelay"] = rng.choice(("10s", "1h"))
    if "stale" in features and rng.random() < 0.3:
        job.extra["stalenessGracePeriod"] = rng.choice(("0s", "60s", "10m", "-1s"))
    if "affinity" in features and rng.random() < 0.1 and name.startswith("wait"):
        job.keep_apart = True
    job.task_priorities = "elastic" in features and rng.random() < 0.2
    if "topology" in features and rng.random() < 0.4:
        if rng.random() < 0.7:
            job.required = rng.choice(raw.LEVELS)
        if not job.required or rng.random() < 0.3:
            job.preferred = raw.LEVELS[1]
    if "subgroups" in features and rng.random() < 0.4:
        _subgroups(rng, features, job)
    else:
        minimum = rng.choice((1, 1, 1, 2, 3, 4))
        surplus = rng.randint(1, 4) if "elastic" in features and rng.random() < 0.4 else 0
        if surplus and rng.random() < 0.1:
            minimum = 0
        job.leaves = [Leaf("", minimum, minimum + surplus)]
    return job


def _subgroups(rng: Random, features: frozenset[str], job: Job) -> None:
    nested = rng.random() < 0.3
    tops = [f"s{i}" for i in range(rng.randint(2, 3))]
    for i, top in enumerate(tops):
        surplus = rng.randint(0, 2) if "elastic" in features else 0
        if nested and i == 0:
            job.sets.append((top, None, rng.choice((None, 1))))
            for kid in ("x", "y"):
                job.leaves.append(Leaf(f"{top}{kid}", 1, 1 + surplus, top))
        else:
            minimum = rng.randint(1, 2)
            job.leaves.append(Leaf(top, minimum, minimum + surplus))
    if rng.random() < 0.4:
        job.least = rng.randint(1, len(tops))


def _ask(rng: Random, features: frozenset[str]) -> Ask:
    ask = Ask(gpus=rng.choice((1, 1, 2, 2, 4, 8)))
    kind = rng.random()
    if kind < 0.15:
        ask.gpus = 0
    elif kind < 0.4 and "fractions" in features:
        ask.gpus, ask.portion = 0, rng.choice((10, 25, 33, 50, 50, 70, 100))
    elif kind < 0.5 and "memory" in features:
        ask.gpus, ask.gpu_mib = 0, rng.choice((4_000, 10_000, 20_001, 60_000))
    elif kind < 0.6 and "mig" in features:
        ask.gpus, ask.mig = 0, rng.choice(MIGS)
    if ask.shares and "multi" in features and rng.random() < 0.3:
        ask.devices = 2
    if "cpu" in features:
        ask.milli_cpus = rng.choice((100, 1000, 4000, 12_000))
        ask.mib = rng.choice((256, 1024, 16_384))
    if "ports" in features and rng.random() < 0.15:
        ask.ports = (rng.choice((8080, 9090)),)
    if "affinity" in features and rng.random() < 0.2:
        ask.selector = {"zone": rng.choice("ab")}
    ask.tolerates = "taints" in features and rng.random() < 0.5
    return ask
