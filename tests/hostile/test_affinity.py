"""Pods whose affinity finds no place: the cost of one does not grow with the number of running pods."""

from __future__ import annotations

import pytest

from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.pods import Pod
from kai_cp_models.rules.stateful.affinity import AffinityState
from tests.support import objects as raw
from tests.support.plans import UNHURRIED
from tests.support.tiny import node, pod, queue

NODES = 10


def contended(waiting: int, rule: str) -> raw.Object:
    """Nodes full of another queue's pods, and pods that wait in vain.

    With ``podAffinity`` they wait for a neighbour that does not exist, with ``podAntiAffinity`` until a
    neighbour leaves that never leaves.
    """
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "stays" if rule == "podAntiAffinity" else "absent"}},
    }
    nodes = [node(f"n{i}", {"cpu": "64"}, gpus=8) for i in range(NODES)]
    for one in nodes:
        one["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = one["metadata"]["name"]
    pods, groups = [], []

    def add(name: str, made: raw.Object, app: str, spec: dict[str, object]) -> None:
        made = {key: value for key, value in made.items() if key != "belongs"}
        made["metadata"].setdefault("labels", {})["app"] = app
        pods.append(made)
        groups.append(raw.group("default", name, 900, {"minMember": 1, **spec}, {}))

    for i in range(NODES):
        for j in range(8):
            name = f"h{i}-{j}"
            kind = "preemptible" if j else "non-preemptible"
            add(
                name,
                pod(name, f"n{i}", gpus=1),
                "h" if j else "stays",
                {"queue": "r", "preemptibility": kind},
            )
    for i in range(waiting):
        made = pod(f"x{i}", gpus=1)
        made["spec"]["affinity"] = {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        add(f"x{i}", made, "waits", {"queue": "q", "preemptibility": "preemptible"})
    return raw.snapshot(
        raw.config("allocate, reclaim, preempt", spread=False, minruntime={}, proportion={}),
        {},
        {
            "nodes": nodes,
            "queues": [queue("top", ""), queue("q"), queue("r")],
            "podGroups": groups,
            "pods": pods,
        },
    )


@pytest.mark.parametrize("rule", ["podAffinity", "podAntiAffinity"])
def test_refused_pods_are_looked_at_a_few_times_each(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    concerns = AffinityState.concerns

    def counted(self: AffinityState, one: Pod) -> bool:
        nonlocal looks
        looks += 1
        return concerns(self, one)

    monkeypatch.setattr(AffinityState, "concerns", counted)
    found = []
    for waiting in (50, 100):
        looks = 0
        plan = decide(parse(contended(waiting, rule), now=raw.NOW.timestamp()), UNHURRIED)
        assert len(plan.unscheduled) == waiting
        found.append(looks)
    first, second = found
    # Not once for each running pod and each waiting pod.
    assert (second - first) / 50 < NODES * 8 / 2
