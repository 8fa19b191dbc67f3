"""Random clusters: whole KAI snapshots with every feature, legal as they are.

``random_cluster(seed)`` mixes features by chance; ``features`` names them instead. Running pods are put on
nodes one by one, within capacity, limits and quotas, so that a checker finds nothing wrong with them.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from tests.support import objects as raw
from tests.support.floor import Ask, Floor
from tests.support.jobs import MIGS, Job, draw_job
from tests.support.queues import Tree, draw_tree

_FEATURES: Final = """actions affinity binding bound cpu deep delay elastic fractions gated limits memory mig
multi namespaces nonpreemptible orphans others overcommit partial ports priorities quotas releasing
reservation restricted runtime slots spread stale stuck subgroups succeeded taints topology unready"""
FEATURES: Final = frozenset(_FEATURES.split())
_ACTIONS: Final = (
    "allocate, consolidation, reclaim, preempt, stalegangeviction",
    "allocate",
    "allocate, reclaim",
    "allocate, preempt",
    "allocate, consolidation",
    "consolidation",
    "reclaim, preempt",
    "allocate, reclaim, preempt, stalegangeviction",
    "stalegangeviction",
)


def random_cluster(seed: int, features: frozenset[str] | None = None, scale: int = 1) -> raw.Object:
    """A raw snapshot of 1 to 12 nodes, times ``scale``; equal arguments give equal clusters."""
    rng = Random(seed)
    if features is None:
        share = rng.choice((0.15, 0.4, 0.8))
        features = frozenset(f for f in sorted(FEATURES) if rng.random() < share)
    return _Cluster(rng, features, scale).drawn()


def clusters(features: frozenset[str] | None = None) -> st.SearchStrategy[raw.Object]:
    """Hypothesis strategy: random clusters. Shrinking works on the seed, so expect no tiny examples."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_cluster(seed, features))


class _Cluster:
    """One cluster in the making."""

    def __init__(self, rng: Random, features: frozenset[str], scale: int) -> None:
        self.rng, self.on, self.scale = rng, features, scale
        self.nodes: list[raw.Object] = []
        self.floors: list[Floor] = []
        self.groups: list[raw.Object] = []
        self.pods: list[raw.Object] = []
        self.requests: list[raw.Object] = []
        for i in range(rng.randint(1, 12) * scale):
            self._node(i)
        self.capacity = sum(floor.gpus for floor in self.floors)
        self.tree: Tree = draw_tree(rng, features, self.capacity)

    def chance(self, feature: str, probability: float) -> bool:
        """Whether a feature is on and drawn."""
        return feature in self.on and self.rng.random() < probability

    def drawn(self) -> raw.Object:
        """The snapshot."""
        rng = self.rng
        if "others" in self.on:
            self._others()
        load = rng.choice((0.0, 0.5, 0.9, 1.2, 1.2))
        for i in range(int(load * 2 * len(self.floors)) + (1 if load else 0)):
            self._job(draw_job(rng, self.on, f"run{i}", self.tree.leaf(rng)), running=True)
        for i in range(rng.randint(1, 6 + len(self.floors))):
            self._job(draw_job(rng, self.on, f"wait{i}", self.tree.leaf(rng)), running=False)
        if "orphans" in self.on:
            self._orphans()
        if "reservation" in self.on:
            for floor in self.floors:
                self.pods += [raw.reservation(floor.name, name) for name in sorted(floor.shared)]
        if "overcommit" in self.on:
            self._overcommit()
        for objects in (self.nodes, self.groups, self.pods, self.requests, self.tree.objects):
            rng.shuffle(objects)
        objects = {
            "nodes": self.nodes,
            "queues": self.tree.objects,
            "podGroups": self.groups,
            "pods": self.pods,
            "bindRequests": self.requests,
        }
        return raw.snapshot(self._config(), self._params(), objects)

    # --- nodes -----------------------------------------------------------------------------------

    def _node(self, i: int) -> None:
        rng = self.rng
        gpus = rng.choice((8, 8, 4, 2, 1)) if rng.random() < 0.9 else 0
        cpus = rng.choice((4, 8, 16, 64)) if "cpu" in self.on else 64
        gib = rng.choice((16, 64, 512)) if "cpu" in self.on else 512
        slots = rng.randint(2, 8) if self.chance("slots", 0.4) else 110
        memory = rng.choice((16_384, 40_960, 81_559))
        labels = {"zone": rng.choice("ab"), raw.LEVELS[0]: f"b{i // 6}", raw.LEVELS[1]: f"r{i // 3}"}
        if self.chance("topology", 0.1):
            del labels[raw.LEVELS[1]]
        floor = Floor(f"n{i:03d}", labels, cpus * 1000, gib * 1024, gpus, slots, memory // 100 * 100)
        resources = {"cpu": str(cpus), "memory": f"{gib}Gi", "pods": str(slots)}
        if gpus and self.chance("mig", 0.3):
            floor.migs = {MIGS[0]: rng.randint(1, 7), MIGS[1]: rng.randint(1, 2)}
            floor.gpus = 0
            resources |= {name: str(count) for name, count in floor.migs.items()}
            labels |= {"nvidia.com/mig.strategy": "mixed", "node-role.kubernetes.io/mig-enabled": "true"}
        elif gpus:
            resources["nvidia.com/gpu"] = str(gpus)
            labels["nvidia.com/gpu.count"] = str(gpus)
            if self.chance("memory", 0.1):
                floor.gpu_memory, floor.synced = 100, False
            else:
                labels["nvidia.com/gpu.memory"] = str(memory * 2**20 if rng.random() < 0.1 else memory)
        if "restricted" in self.on:
            roles = rng.choice((("gpu",), ("cpu",), ("gpu", "cpu"), ("gpu", "cpu"), ()))
            labels |= {f"node-role.kubernetes.io/{role}-worker": "" for role in roles}
        one = raw.node(floor.name, resources, labels)
        if self.chance("taints", 0.3):
            effect = rng.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
            floor.tainted = effect != "PreferNoSchedule"
            one["spec"]["taints"] = [{"key": "dedicated", "value": "ml", "effect": effect}]
        if self.chance("unready", 0.2):
            floor.usable = False
            if rng.random() < 0.5:
                one["spec"]["unschedulable"] = True
            else:
                bad = (("Ready", "False"), ("MemoryPressure", "True"), ("DiskPressure", "True"))
                kind, status = rng.choice(bad)
                one["status"]["conditions"] = [{"type": kind, "status": status}]
        self.nodes.append(one)
        self.floors.append(floor)

    def _others(self) -> None:
        for i in range(self.rng.randint(1, 3)):
            floor = self.rng.choice(self.floors)
            gpus = int(floor.gpus > 0 and self.rng.random() < 0.5)
            if floor.put(Ask(gpus=gpus, tolerates=True), self.rng) is None:
                continue
            amounts = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": "1"} if gpus else {})
            one = raw.pod("kube-system", f"other-{i}", 9999, amounts)
            raw.settle(one, floor.name, [], "Running")
            self.pods.append(one)

    def _orphans(self) -> None:
        """Pods whose group, queue or subgroup does not exist."""
        self.pods.append(raw.pod("default", "lost-0", 100, {"cpu": "1"}, "no-such-group"))
        nowhere = {"minMember": 1, "queue": "no-such-queue"}
        self.groups.append(raw.group("default", "homeless", 100, nowhere, {}))
        self.pods.append(raw.pod("default", "homeless-0", 100, {"cpu": "1"}, "homeless"))

    def _overcommit(self) -> None:
        """Shrink a node below what runs there, as a broken device plugin does."""
        one = self.rng.choice(self.nodes)
        resource = self.rng.choice(("cpu", "nvidia.com/gpu"))
        if resource in one["status"]["allocatable"]:
            one["status"]["allocatable"] = one["status"]["allocatable"] | {resource: "1"}

    # --- jobs ------------------------------------------------------------------------------------

    def _job(self, job: Job, *, running: bool) -> None:
        """Write a job; of a running job, the pods that fit run."""
        if not running:
            self._write(job, {}, "")
            return
        saved = [(floor, vars(floor).copy()) for floor in self.floors]
        book = dict(self.tree.used)
        places = self._places(job)
        if places is None:
            for floor, values in saved:
                vars(floor).update(values)
            self.tree.used = book
            job.name = job.name.replace("run", "late")
        self._write(job, places or {}, self._state() if places else "")

    def _state(self) -> str:
        """The states of the pods of a running job; most of them share one state."""
        for state in ("Bound", "Binding", "Releasing", "Stuck"):
            if self.chance(state.lower(), 0.1):
                return state
        return "Running"

    def _places(self, job: Job) -> dict[str, tuple[Floor, list[str]]] | None:
        """Places for the first pods of every pod set; None: the minimum does not fit."""
        floors = [floor for floor in self.floors if self._allowed(job, floor)]
        self.rng.shuffle(floors)
        if job.required and floors:
            level = raw.LEVELS[: raw.LEVELS.index(job.required) + 1]
            domain = [floors[0].labels.get(x) for x in level]
            floors = [f for f in floors if [f.labels.get(x) for x in level] == domain]
        if job.required or job.preferred:
            floors = [f for f in floors if all(x in f.labels for x in raw.LEVELS)]
        for floor in floors:
            floor.shared, floor.migs, floor.ports = dict(floor.shared), dict(floor.migs), set(floor.ports)
        found: dict[str, tuple[Floor, list[str]]] = {}
        for leaf in job.leaves:
            run = leaf.count if not self.chance("partial", 0.5) else leaf.minimum
            if self.chance("stale", 0.2) and leaf.minimum > 1:
                run = leaf.minimum - 1
            for i in range(run):
                place = self._place(job, floors)
                if place is None:
                    if i < leaf.minimum:
                        return None
                    break
                found[leaf.pod_name(job.name, i)] = place
        return found or None

    def _place(self, job: Job, floors: list[Floor]) -> tuple[Floor, list[str]] | None:
        for floor in floors:
            charge = (job.ask.milli_cpus, job.ask.mib * 2**20, job.ask.gpu_hundredths(floor.gpu_memory))
            if not self.tree.room(job.queue, charge, firm=job.firm):
                continue
            groups = floor.put(job.ask, self.rng)
            if groups is not None:
                self.tree.charge(job.queue, charge, firm=job.firm)
                return floor, groups
        return None

    def _allowed(self, job: Job, floor: Floor) -> bool:
        if "restricted" not in self.on:
            return True
        role = "gpu" if job.ask.gpus or job.ask.shares or job.ask.mig else "cpu"
        return f"node-role.kubernetes.io/{role}-worker" in floor.labels

    def _write(self, job: Job, places: dict[str, tuple[Floor, list[str]]], state: str) -> None:
        rng = self.rng
        annotations: dict[str, str] = {}
        active = bool(places) and state in ("Running", "Bound", "Binding")
        if active:
            annotations["kai.scheduler/last-start-timestamp"] = raw.ago(rng.choice((10, 100, 1000, 5000)))
        if active and rng.random() < 0.1:
            annotations["kai.scheduler/last-eviction-timestamp"] = raw.ago(rng.choice((5, 500)))
        pods = job.pods()
        runs = [[leaf.pod_name(job.name, i) in places for i in range(leaf.count)] for leaf in job.leaves]
        short = any(sum(mine) < leaf.minimum for mine, leaf in zip(runs, job.leaves, strict=True))
        if active and short:
            annotations["kai.scheduler/stale-podgroup-timestamp"] = raw.ago(rng.choice((5, 50, 70, 900)))
        for one in pods:
            name = one["metadata"]["name"]
            if name in places:
                floor, groups = places[name]
                mine = state
                if state == "Running" and self.chance("releasing", 0.1):
                    mine = "Releasing"
                request = raw.settle(one, floor.name, groups, mine)
                if request is not None:
                    self.requests.append(request)
            elif self.chance("gated", 0.15):
                one["spec"]["schedulingGates"] = [{"name": "wait"}]
            elif places and self.chance("succeeded", 0.1):
                one["status"]["phase"] = rng.choice(("Succeeded", "Failed"))
        self.pods += pods
        self.groups.append(raw.group(job.namespace, job.name, job.age, job.spec(), annotations))

    # --- settings --------------------------------------------------------------------------------

    def _config(self) -> raw.Object:
        rng = self.rng
        spread = "spread" in self.on
        actions = rng.choice(_ACTIONS) if "actions" in self.on else _ACTIONS[0]
        if spread:
            actions = ", ".join(a for a in actions.split(", ") if a != "consolidation") or "allocate"
        runtime = {}
        if "runtime" in self.on:
            runtime = {
                "defaultPreemptMinRuntime": rng.choice(("0s", "50s", "10m")),
                "defaultReclaimMinRuntime": rng.choice(("0s", "50s", "10m")),
                "reclaimResolveMethod": rng.choice(("lca", "queue")),
            }
        proportion = {"relcaimerSaturationMultiplier": "1.5"} if self.chance("quotas", 0.2) else {}
        return raw.config(actions, spread=spread, minruntime=runtime, proportion=proportion)

    def _params(self) -> dict[str, Any]:
        return {
            "maxNumberConsolidationPreemptees": self.rng.choice((16, 16, -1, 2, 1)),
            "allowConsolidatingReclaim": self.rng.random() < 0.8,
            "restrictSchedulingNodes": "restricted" in self.on,
        }
