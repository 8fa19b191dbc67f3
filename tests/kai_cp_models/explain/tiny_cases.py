"""Random worlds of a few nodes in which one pod group waits, and the question that its explanation asks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from kai_cp_models.explain.question import Question
from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from tests.support.devices import (
    allocation,
    claim,
    claims,
    device,
    device_class,
    exact,
    on_nodes,
    slice_of,
    storage_class,
    volume,
    volume_claim,
    volumes,
)
from tests.support.objects import Object
from tests.support.plans import ALL_RULES
from tests.support.tiny import node, pod, queue, world

CLASSES = {"low": 40, "mine": 50, "high": 60, "fixed": 150}
"""Priority classes; pods at 100 or above cannot be preempted."""

TAINT = {"key": "keep", "value": "out", "effect": "NoSchedule"}
FEATURES = {
    "budget": "pdb",
    "claims": "dra",
    "mig": "gpu-kind",
    "spread": "spread",
    "subgroups": "",
    "users": "limit:q/u",
    "volumes": "volumes",
    "workers": "worker",
}
"""What a world may have beside the rest, and the family that it brings in.

- budget: marked pods may be disturbed ``amount`` times;
- claims: every waiting pod claims a device, marked pods hold one where there is one;
- mig: chosen nodes serve MIG instances alone;
- spread: the waiting pods spread over two zones, the nodes with even and with odd numbers;
- subgroups: the gang has three subgroups of one pod each and needs ``amount`` + 1 of them;
- users: all pods are those of user u, who may hold ``amount`` + 2 GPUs of the queue;
- volumes: each waiting pod has a volume that lies on the chosen nodes;
- workers: node scheduling is restricted, and the chosen nodes are GPU workers, the rest CPU workers.
"""
SUBGROUPS = ("a", "b", "c")
OWNED = {"labels": {"user": "u"}}


@dataclass(frozen=True)
class Case:
    """GPUs by node; (node, GPUs, class) of running pods; GPUs of the pods that wait; limit; actions.

    The first node may be cordoned, the last one tainted; ``labelled``: nodes that carry the label that the
    waiting pods select, None where they select none. ``features``: see ``FEATURES``; ``chosen``: the nodes
    and ``marked``: the running pods that a feature is about, ``amount``: its number.
    """

    nodes: tuple[int, ...]
    running: tuple[tuple[int, int, str], ...]
    asked: tuple[int, ...]
    limit: int
    consolidation: bool
    preempt: bool
    cordoned: bool
    tainted: bool
    labelled: frozenset[int] | None
    features: frozenset[str] = frozenset()
    chosen: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    amount: int = 0

    @property
    def batch(self) -> tuple[int, ...]:
        """GPUs of the pods that must start together."""
        return self.asked[: self.amount + 1] if "subgroups" in self.features else self.asked

    @property
    def user_limit(self) -> int:
        """GPUs that the user may hold in the queue."""
        return self.amount + 2

    @property
    def devices(self) -> list[int]:
        """Devices of every node that can be claimed; there is one at least."""
        return [self.amount + (n in self.chosen or n == 0) for n in range(len(self.nodes))]

    @property
    def holders(self) -> list[int]:
        """Running pods that hold a device."""
        left, found = self.devices, []
        for i, (n, _, _) in enumerate(self.running):
            if i in self.marked and left[n]:
                left[n] -= 1
                found.append(i)
        return found


@st.composite
def cases(draw: st.DrawFn, features: frozenset[str] = frozenset()) -> Case:
    fewest = 2 if "spread" in features else 1
    nodes = tuple(draw(st.lists(st.integers(1, 4), min_size=fewest, max_size=3)))
    free = list(nodes)
    running = []
    for _ in range(draw(st.integers(0, 4))):
        n = draw(st.integers(0, len(nodes) - 1))
        if free[n]:
            size = draw(st.integers(1, free[n]))
            free[n] -= size
            running.append((n, size, draw(st.sampled_from(sorted(CLASSES)))))
    size = draw(st.integers(1, 4))
    asked = (size,) * draw(st.integers(fewest, 2))
    limit = draw(st.sampled_from((-1, -1, 2, 4, 6)))
    flags = [draw(st.booleans()) for _ in range(4)]
    some_nodes = st.frozensets(st.integers(0, len(nodes) - 1))
    labelled = draw(st.none() | some_nodes)
    case = Case(nodes, tuple(running), asked, limit, flags[0], flags[1], flags[2], flags[3], labelled)
    if not features:
        return case
    if "subgroups" in features:
        case = replace(case, asked=(size,) * len(SUBGROUPS))
    chosen = draw(some_nodes) or frozenset((0,))
    marked = frozenset(i for i in range(len(running)) if draw(st.booleans()))
    amount = draw(st.integers(0, len(SUBGROUPS) - 1)) if "subgroups" in features else draw(st.integers(0, 1))
    if "budget" in features:  # A budget matters only if nothing but running pods stands in the way.
        case = replace(case, cordoned=False, tainted=False, labelled=None, limit=-1)
        count = len(SUBGROUPS) if "subgroups" in features else 1
        case = replace(case, asked=(max(nodes),) * count, preempt=True)
    return replace(case, features=features, chosen=chosen, marked=marked, amount=amount)


def question_of(case: Case) -> Question:
    """The question of the waiting pods. The world is taken as it is; no cycle decides for them."""
    classes = [
        {"metadata": {"name": name, "uid": f"class-{name}"}, "value": value}
        for name, value in CLASSES.items()
    ]
    nodes = [
        node(
            f"n{i}",
            {"cpu": "640"},
            gpus=gpus,
            unschedulable=case.cordoned and i == 0,
            taints=[TAINT] if case.tainted and i == len(case.nodes) - 1 else [],
            labels=_labels(case, i),
        )
        for i, gpus in enumerate(case.nodes)
    ]
    holders = case.holders if "claims" in case.features else []
    pods = [
        pod(
            f"r{i}",
            f"n{n}",
            gpus=size,
            priority=name,
            labels={"guarded": "yes"} if i in case.marked else {},
            **({"resourceClaims": claims(f"r{i}")} if i in holders else {}),
        )
        for i, (n, size, name) in enumerate(case.running)
    ]
    pods += [_waiting(case, i, size) for i, size in enumerate(case.asked)]
    gang: dict[str, Any] = {"minMember": len(case.asked)}
    if "subgroups" in case.features:
        parts = [{"name": name, "minMember": 1} for name in SUBGROUPS]
        gang = {"minSubGroup": case.amount + 1, "subGroups": parts}
    actions = ["allocate", *["consolidation"] * case.consolidation, *["preempt"] * case.preempt]
    shared = queue("q", limit={"gpu": case.limit})
    if "users" in case.features:
        terms = {"u": {"gpuLimit": case.user_limit}}
        shared["metadata"]["annotations"] = {"kai-cp/users": json.dumps(terms)}
    snapshot = world(
        nodes,
        pods,
        actions=", ".join(actions),
        groups={
            "x": {**gang, **OWNED, "preemptibility": "preemptible"},
            **{
                f"r{i}": {**OWNED, "preemptibility": _word(name)}
                for i, (_, _, name) in enumerate(case.running)
            },
        },
        queues=[shared],
        user_label="user" if "users" in case.features else "",
        params={
            "maxNumberConsolidationPreemptees": 16,
            "restrictSchedulingNodes": "workers" in case.features,
        },
        priorityClasses=classes,
        **_objects(case),
    )
    situation = Situation(snapshot, ALL_RULES, Plan())
    group = snapshot.group_by_key[GroupKey("default", "x")]
    return Question(situation, group)


def _labels(case: Case, n: int) -> dict[str, str]:
    """The labels of a node."""
    found = {"zone": f"z{n % 2}", "name": f"n{n}"}
    if n in (case.labelled or ()):
        found["disk"] = "fast"
    if "workers" in case.features:
        found[f"node-role.kubernetes.io/{'gpu' if n in case.chosen else 'cpu'}-worker"] = ""
    if n in case.chosen and "mig" in case.features:
        found |= {"node-role.kubernetes.io/mig-enabled": "true", "nvidia.com/mig.strategy": "mixed"}
    return found


def _waiting(case: Case, i: int, size: int) -> Object:
    """A pod of the gang."""
    spec: dict[str, Any] = {} if case.labelled is None else {"nodeSelector": {"disk": "fast"}}
    labels = {"app": "x"}
    if "subgroups" in case.features:
        labels["kai.scheduler/subgroup-name"] = SUBGROUPS[i]
    if "volumes" in case.features:
        spec["volumes"] = volumes(f"x{i}")
    if "claims" in case.features:
        spec["resourceClaims"] = claims(f"x{i}")
    if "spread" in case.features:
        rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**rule, "labelSelector": {"matchLabels": {"app": "x"}}}]
    return pod(f"x{i}", gpus=size, group="x", priority="mine", labels=labels, **spec)


def _objects(case: Case) -> dict[str, list[Object]]:
    """The objects that the features need beside nodes and pods."""
    found: dict[str, list[Object]] = {}
    waiting = [f"x{i}" for i in range(len(case.asked))]
    if "budget" in case.features:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"guarded": "yes"}}}
        meta = {"name": "keep", "namespace": "default", "uid": "keep"}
        status = {"disruptionsAllowed": case.amount}
        found["podDisruptionBudgets"] = [{"metadata": meta, "spec": spec, "status": status}]
    if "volumes" in case.features:
        place = on_nodes("name", *(f"n{n}" for n in sorted(case.chosen)))
        found["persistentVolumes"] = [volume(f"v-{name}", claim=name, nodes=place) for name in waiting]
        found["persistentVolumeClaims"] = [volume_claim(name, volume=f"v-{name}") for name in waiting]
        found["storageClasses"] = [storage_class("local")]
    if "claims" in case.features:
        found["deviceClasses"] = [device_class()]
        found["resourceSlices"] = [
            slice_of(f"n{n}", *(device(f"d{k}") for k in range(count)))
            for n, count in enumerate(case.devices)
        ]
        taken = [0] * len(case.nodes)
        found["resourceClaims"] = [claim(name, exact()) for name in waiting]
        for i in case.holders:
            n = case.running[i][0]
            held = allocation(f"n{n}", f"d{taken[n]}")
            found["resourceClaims"].append(claim(f"r{i}", exact(), users=(f"r{i}",), held=held))
            taken[n] += 1
    return found


def _word(name: str) -> str:
    return "non-preemptible" if CLASSES[name] >= 100 else "preemptible"
