"""Families of rules without a recorded case: workers, GPU kinds, budgets, spread, bound volumes, K of N
subgroups.
"""

from __future__ import annotations

from typing import Any

from kai_cp_models.engine import decide
from kai_cp_models.explain.blocking import blocking_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import OptionalRules, Settings
from kai_cp_models.snapshot import Snapshot
from tests.support.plans import UNHURRIED
from tests.support.tiny import node, pod, world


def sets_of(snapshot: Snapshot, settings: Settings | None = None) -> list[list[str]]:
    """The minimal blocking sets of pod group ``x`` after its cycle."""
    chosen = settings or UNHURRIED
    situation = Situation(snapshot, chosen, decide(snapshot, chosen))
    group = snapshot.group_by_key[GroupKey("default", "x")]
    assert situation.state(group.key) == "pending"
    return [sorted(families) for families in blocking_of(situation, group).sets]


def test_restricted_scheduling_needs_a_worker_of_the_kind() -> None:
    params, labels = {"restrictSchedulingNodes": True}, {"node-role.kubernetes.io/cpu-worker": ""}
    snapshot = world([node("n0", gpus=4, labels=labels)], [pod("x", gpus=1)], params=params)
    assert sets_of(snapshot) == [["worker"]]


def test_a_share_by_memory_needs_a_node_whose_memory_is_known() -> None:
    bare = node("n0", {"nvidia.com/gpu": "4"})
    snapshot = world([bare], [pod("x", notes={"gpu-memory": "50"})])
    assert sets_of(snapshot) == [["gpu-kind"]]


def test_a_disruption_budget_keeps_the_victim() -> None:
    budget: dict[str, Any] = {
        "metadata": {"name": "keep", "namespace": "default", "uid": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "r"}}},
        "status": {"disruptionsAllowed": 0},
    }
    classes = [
        {"metadata": {"name": name, "uid": name}, "value": value}
        for name, value in (("low", 40), ("high", 60))
    ]
    snapshot = world(
        [node("n0", gpus=1)],
        [pod("r", "n0", gpus=1, priority="low"), pod("x", gpus=1, priority="high")],
        actions="allocate, preempt",
        priorityClasses=classes,
        podDisruptionBudgets=[budget],
    )
    settings = Settings(rules=OptionalRules(pod_disruption_budgets=True))
    assert sets_of(snapshot, settings) == [["pdb", "room:gpu"]]


def zones(*full: bool) -> list[dict[str, Any]]:
    """One node in each zone, named z0, z1 and so on; a full node has no CPU left."""
    return [
        node(f"n{i}", {"cpu": "0" if none else "8"}, labels={"zone": f"z{i}"}) for i, none in enumerate(full)
    ]


def test_pods_that_must_spread_find_capacity_in_one_zone() -> None:
    rule = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    pods = [pod(f"x{i}", group="x", labels={"app": "x"}, topologySpreadConstraints=[rule]) for i in range(2)]
    snapshot = world(zones(False, True), pods, groups={"x": {"minMember": 2}})
    settings = Settings(rules=OptionalRules(topology_spread=True))
    assert sets_of(snapshot, settings) == [["fragmentation", "room:cpu", "spread"]]


def test_a_volume_lies_on_a_full_node() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]}
    volume = {
        "metadata": {"name": "v", "uid": "v"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "claimRef": {"namespace": "default", "name": "c"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "local",
            "volumeName": "v",
        },
        "status": {"phase": "Bound"},
    }
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    snapshot = world(
        zones(True, False),
        [pod("x", volumes=mounts)],
        persistentVolumes=[volume],
        persistentVolumeClaims=[claim],
        storageClasses=[{"metadata": {"name": "local", "uid": "l"}, "provisioner": "none"}],
    )
    # Parts of a pod need no volume, so the family of whole pods blocks as well.
    assert sets_of(snapshot) == [["fragmentation", "room:cpu", "volumes"]]


def test_capacity_for_one_of_two_missing_subgroups() -> None:
    names = ("a", "b", "c")
    label = "kai.scheduler/subgroup-name"
    pods = [pod(f"x-{name}", gpus=2, group="x", labels={label: name}) for name in names]
    parts = [{"name": name, "minMember": 1} for name in names]
    snapshot = world(
        [node("n0", gpus=2)],
        pods,
        groups={"x": {"minSubGroup": 2, "subGroups": parts}},
    )
    assert sets_of(snapshot) == [["room:gpu"]]


def test_capacity_given_to_groups_ahead_counts_as_order() -> None:
    """y is older and takes the node. x would fit without the place of y, and it would fit without the rules
    of capacity.
    """
    pods = [pod("y", gpus=2), pod("x", gpus=2)]
    assert sets_of(world([node("n0", gpus=2)], pods)) == [["order", "room:gpu"]]
