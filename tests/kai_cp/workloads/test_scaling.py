"""Scaling pods: as many GPUs as the waiting shares add up to, and none for what a quota holds back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.workloads import scaling
from kai_cp.workloads.scaling import Adjustment, ScalingSetup, adjust, scaling_name, scaling_pod

SETUP = ScalingSetup()
Object = dict[str, Any]


def waiting(
    name: str, fraction: str = "0.5", devices: int = 1, reason: str = "Unschedulable", **meta: Any
) -> Object:
    """A pod of our scheduler with a share of a GPU, at which the scheduler has looked."""
    annotations = {"gpu-fraction": fraction, "pod-group-name": "g"}
    if devices > 1:
        annotations["gpu-fraction-num-devices"] = str(devices)
    requests = {"cpu": "500m", "memory": "1Gi"}
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations, **meta},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}],
        },
    }


def run(pods: list[Object], scaling: list[Object] | None = None, **more: Any) -> Adjustment:
    """One pass."""
    return adjust(pods, scaling or [], more.pop("groups", {}), SETUP, cooling=more.pop("cooling", False))


def gpus(pods: Any) -> list[int]:
    return [int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for pod in pods]


@pytest.mark.parametrize(
    ("pods", "asked"),
    [
        ([waiting("a")], [1]),
        ([waiting("a"), waiting("b")], [1]),
        ([waiting("a"), waiting("b"), waiting("c")], [1, 1]),
        ([waiting("a", "0.9"), waiting("b", "0.9")], [1, 1]),
        ([waiting("a", "0.1", devices=4)], [4]),
        ([waiting("a", "0.1"), waiting("b", "0.1", devices=4)], [1, 4]),
        ([waiting("a", reason="SchedulingGated")], []),
        ([waiting("a", "nonsense")], []),
        ([waiting("a", deletionTimestamp="now")], []),
    ],
)
def test_parts_add_up_to_whole_gpus(pods: list[Object], asked: list[int]) -> None:
    assert gpus(run(pods).create) == asked


def test_a_namespace_covers_no_pods_of_another() -> None:
    """The scaling pod for 64 GPUs on one node never ends; one pod asks for more CPUs than a number holds."""
    wide = waiting("wide", "0.01", devices=64, namespace="other")
    huge = waiting("huge", "0.5", namespace="other")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1e30"
    pods = [huge, wide, waiting("a", "0.9"), waiting("b", "0.9")]
    made = run(pods).create
    assert gpus(made) == [1, 1, 64], "namespaces take turns"
    assert run(pods, [dict(made[2])]).create == made[:2]


def test_no_more_scaling_pods_are_made_than_a_pass_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass made one for every pod that waits: 2.8 s of processor time for 20,000, after each change."""
    asked: list[str] = []

    def counted(pod: Object, *more: Any) -> Object:
        asked.append(pod["metadata"]["name"])
        return scaling_pod(pod, *more)

    monkeypatch.setattr(scaling, "scaling_pod", counted)
    pods = [waiting(f"p{i}", "0.9") for i in range(100)]
    assert len(adjust(pods, [], {}, SETUP, cooling=False, most=5).create) == 6, "and one that says so"
    assert len(asked) == 6


def test_memory_counts_for_a_tenth() -> None:
    pods = [waiting(f"p{i}") for i in range(11)]
    for pod in pods:
        pod["metadata"]["annotations"] = {"gpu-memory": "4096"}
    assert gpus(run(pods[:10]).create) == [1]
    assert gpus(run(pods).create) == [1, 1]


@pytest.mark.parametrize(
    "reason", ["OverLimit", "NonPreemptibleOverQuota", "DependencyMissing", "QueueNotLeaf"]
)
def test_nothing_is_asked_for_what_a_quota_holds_back(reason: str) -> None:
    status = {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "reasons": [{"reason": reason}]}]}
    groups = {("ns", "g"): {"status": status}}
    assert run([waiting("a")], groups=groups) == Adjustment()
    shown = run([waiting("a")]).create
    assert run([waiting("a")], list(shown), groups=groups).delete == ("ns-a",)


def test_a_scaling_pod_goes_with_its_reason() -> None:
    (shown,) = run([waiting("a")]).create
    assert run([waiting("a")], [dict(shown)]) == Adjustment(devices_needed=1)
    bound = waiting("a")
    bound["spec"]["nodeName"] = "n"
    assert run([bound], [dict(shown)]).delete == ("ns-a",)
    assert run([], [dict(shown)]).delete == ("ns-a",)
    done = {**shown, "status": {"phase": "Succeeded"}}
    assert run([waiting("a")], [done]) == Adjustment(("ns-a",), (), 1), "and nothing new at once"
    assert run([waiting("a")], cooling=True) == Adjustment((), (), 1)
    unseen = waiting("a")
    unseen["status"]["conditions"] = []
    assert run([unseen], [dict(shown)]).delete == (), "a pod that was not looked at yet has no place"


def test_a_pod_with_a_place_asks_for_no_scaling() -> None:
    (shown,) = run([waiting("a")]).create
    assert adjust([waiting("a")], [shown], {}, SETUP, cooling=False, ordered={("ns", "a")}).delete == (
        "ns-a",
    )
    assert adjust([waiting("a")], [], {}, SETUP, cooling=False, ordered={("ns", "a")}) == Adjustment()


def test_a_scaling_pod_runs_where_its_pod_could() -> None:
    pod = waiting("a", "0.5", devices=2)
    pod["spec"] |= {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "runtimeClassName": "nvidia",
    }
    made = scaling_pod(pod, 2, SETUP)
    assert made["spec"]["nodeSelector"] == {"a": "b"}
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert made["spec"]["runtimeClassName"] == "nvidia"
    assert "schedulerName" not in made["spec"]
    amounts = made["spec"]["containers"][0]["resources"]
    assert amounts["requests"] == {"nvidia.com/gpu": "2", "cpu": "500m", "memory": "1073741824"}
    assert made["metadata"]["labels"] == {
        "app": "scaling-pod",
        "shared-gpu-pod-name": "a",
        "shared-gpu-pod-namespace": "ns",
    }


def test_a_scaling_pod_looks_for_the_pods_of_its_pods_namespace() -> None:
    """A term without namespaces is about those of the pod that has it, which is another one's here."""
    near: Object = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "data"}}}
    named, everywhere = {**near, "namespaces": ["other"]}, {**near, "namespaceSelector": {}}
    required, preferred = (
        f"{one}DuringSchedulingIgnoredDuringExecution" for one in ("required", "preferred")
    )
    pod = waiting("a")
    nodes = {required: {"nodeSelectorTerms": [{"matchFields": []}]}}
    pod["spec"]["affinity"] = {
        "nodeAffinity": nodes,
        "podAffinity": {required: [near, named, everywhere]},
        "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": near}]},
    }
    own = {**near, "namespaces": ["ns"]}
    assert scaling_pod(pod, 1, SETUP)["spec"]["affinity"] == {
        "nodeAffinity": nodes,
        "podAffinity": {required: [own, named, everywhere]},
        "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": own}]},
    }
    assert "affinity" not in scaling_pod(waiting("b"), 1, SETUP)["spec"]


def test_long_names_stay_names() -> None:
    long = "p" * 253
    (made,) = run([waiting(long)]).create
    assert len(made["metadata"]["name"]) <= 253
    assert len(made["metadata"]["labels"]["shared-gpu-pod-name"]) <= 63
    assert run([waiting(long)], [dict(made)]) == Adjustment(devices_needed=1), "it is known again"
    assert scaling_name("n", long) != scaling_name("n", "p" * 252 + "q")


def test_a_pod_takes_the_name_of_no_other_namespaces_scaling_pod() -> None:
    """Who may choose a pod's name could keep a namespace of a longer name from being shown."""
    theirs, ours = waiting("c", namespace="a-b"), waiting("b-c", namespace="a")
    both = run([theirs, ours]).create
    assert len({pod["metadata"]["name"] for pod in both}) == len(both) == 2
    first = run([ours]).create
    (second,) = run([theirs, ours], [dict(pod) for pod in first]).create
    assert second["metadata"]["labels"]["shared-gpu-pod-namespace"] == "a-b"
    assert second["metadata"]["name"] != first[0]["metadata"]["name"]
    assert not run([theirs, ours], [dict(pod) for pod in (*first, second)]).create


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 8)), max_size=8))
def test_enough_is_asked_for_and_little_more(asks: list[tuple[int, int]]) -> None:
    pods = [waiting(f"p{i}", f"0.{h:02d}", devices) for i, (h, devices) in enumerate(asks)]
    first = run(pods)
    shown = [dict(pod) for pod in first.create]
    needed = -(-sum(h * devices for h, devices in asks) // 100)
    assert sum(gpus(shown)) >= needed
    assert max(gpus(shown), default=0) == max((devices for _, devices in asks), default=0)
    assert sum(gpus(shown)) < needed + sum(devices for _, devices in asks) or not asks
    assert run(pods, shown) == Adjustment(devices_needed=needed), "the second pass asks for nothing"
