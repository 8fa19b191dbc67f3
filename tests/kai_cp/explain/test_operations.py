"""Every operation of what-if as written on a command line: its effect on a tiny cluster, argued by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kai_cp.explain.command_line import OPTIONS, BadFile, operation
from kai_cp.explain.cycle import Cycles
from kai_cp.explain.draft import BadOperation, Draft
from kai_cp.explain.operations import KNOWN, applied
from kai_cp.explain.text import describe
from kai_cp.explain.whatif import whatif
from kai_cp_models.settings import Settings
from tests.kai_cp.explain.clusters import NOW, cluster, racks
from tests.support import objects as raw
from tests.support.tiny import node, pod, queue

FIRM: raw.Object = {"preemptibility": "non-preemptible"}
SOFT: raw.Object = {"preemptibility": "preemptible"}
TAINT = {"key": "keep", "value": "out", "effect": "NoSchedule"}
CLASSES = [
    {"metadata": {"name": name, "uid": name}, "value": value} for name, value in (("train", 50), ("high", 60))
]


def full() -> raw.Object:
    """a holds the only node with GPUs, n1 is too small, and x waits for two GPUs."""
    return cluster(
        [node("n0", gpus=2), node("n1", gpus=1)],
        [pod("a", "n0", gpus=1), pod("x", gpus=2)],
        groups={"a": FIRM},
    )


def two_run() -> raw.Object:
    """a and b each fill a node of two GPUs."""
    return cluster(
        [node("n0", gpus=2), node("n1", gpus=2)],
        [pod("a", "n0", gpus=2), pod("b", "n1", gpus=2)],
        groups={"a": FIRM, "b": FIRM},
    )


def waits(waiting: raw.Object | None = None, one: raw.Object | None = None, **given: Any) -> raw.Object:
    """x waits for two GPUs of an empty node, unless the arguments say otherwise."""
    return cluster([one or node("n0", gpus=2)], [waiting or pod("x", gpus=2)], **given)


def gang(**spec: Any) -> raw.Object:
    """x needs two pods of one GPU, and one is free."""
    return cluster(
        [node("n0", gpus=1)],
        [pod("x-0", gpus=1, group="x"), pod("x-1", gpus=1, group="x")],
        groups={"x": {"minMember": 2, **spec}},
    )


def borrowed(**spec: Any) -> raw.Object:
    """b holds four GPUs that it borrows; a, with x, is owed half of them."""
    world = cluster(
        [node("n0", gpus=4)],
        [*(pod(f"b{i}", "n0", gpus=1, queue="b") for i in range(4)), pod("x", gpus=2, queue="a")],
        groups=dict.fromkeys(("b0", "b1", "b2", "b3", "x"), SOFT),
        queues=[queue("a", quota={"gpu": 0}), queue("b", quota={"gpu": 0}, **spec)],
    )
    return started(world)


def outranked() -> raw.Object:
    """x has a higher priority than a, which holds the GPUs that x needs."""
    world = cluster(
        [node("n0", gpus=2)],
        [pod("a", "n0", gpus=2), pod("x", gpus=2, priority="high")],
        groups={"a": SOFT, "x": SOFT},
        priorityClasses=CLASSES,
    )
    return started(world)


def equals() -> raw.Object:
    """As ``outranked``, but x has the priority of a."""
    return cluster(
        [node("n0", gpus=2)],
        [pod("a", "n0", gpus=2), pod("x", gpus=2)],
        groups={"a": SOFT, "x": SOFT},
        priorityClasses=CLASSES,
    )


def started(world: raw.Object) -> raw.Object:
    """All pod groups started ten minutes ago."""
    for group in world["rawObjects"]["podGroups"]:
        group["metadata"]["annotations"]["kai.scheduler/last-start-timestamp"] = raw.ago(600)
    return world


def two_queues() -> raw.Object:
    """Two equal queues with equal jobs for the same two GPUs: the queue whose name comes first gets them."""
    return cluster(
        [node("n0", gpus=2)],
        [pod("y", gpus=2, queue="b"), pod("x", gpus=2, queue="a")],
        queues=[queue("a"), queue("b")],
    )


def backed_off() -> raw.Object:
    """x was tried in vain and may not be tried again."""
    world = waits(groups={"x": {"schedulingBackoff": 1}})
    condition = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "reason": "Unschedulable",
        "status": "True",
        "transitionID": "1",
    }
    world["rawObjects"]["podGroups"][0]["status"] = {"schedulingConditions": [condition]}
    return world


def ending() -> raw.Object:
    """a holds the GPUs that x needs and declares an end 20 minutes from now."""
    world = full()
    for one in world["rawObjects"]["pods"]:
        if one["metadata"]["name"] == "a":
            one["status"]["startTime"] = raw.ago(600)
            one["metadata"]["annotations"]["kai-cp/expected-runtime"] = "30m"
    return world


def mislabelled() -> raw.Object:
    """x has a subgroup that its pod does not name."""
    return waits(
        pod("x", gpus=2, labels={"kai.scheduler/subgroup-name": "wrong"}),
        groups={"x": {"subGroups": [{"name": "right", "minMember": 1}]}},
    )


def without_config_map() -> raw.Object:
    """x mounts a ConfigMap that does not exist."""
    return waits(pod("x", gpus=2, volumes=[{"name": "v", "configMap": {"name": "c"}}]))


NEW = [
    {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
     "metadata": {"name": "new", "namespace": "default"}, "spec": {"queue": "q", "minMember": 1}},
    {"apiVersion": "v1", "kind": "Pod",
     "metadata": {"name": "new-0", "namespace": "default", "annotations": {"pod-group-name": "new"}},
     "spec": {"schedulerName": "kai-scheduler",
              "containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}},
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An option with its value; its effect: ``+x`` gains, ``-a`` loses, ``*n`` is added; GPUs held after."""

    option: str
    value: str
    world: Callable[[], raw.Object]
    effect: str
    gpus: float


ROWS = [
    Row("--add-nodes", "n0=1", full, "+x", 3),
    Row("--remove-nodes", "n1", two_run, "-b", 2),
    Row("--drain", "n1", two_run, "-b", 2),
    Row("--cordon", "n0", waits, "-x", 0),
    Row("--uncordon", "n0", lambda: waits(one=node("n0", gpus=2, unschedulable=True)), "+x", 2),
    Row("--untaint", "n0=keep", lambda: waits(one=node("n0", gpus=2, taints=[TAINT])), "+x", 2),
    Row("--set-queue", "q.gpu.limit=2", lambda: waits(queues=[queue("q", limit={"gpu": 1})]), "+x", 2),
    Row(
        "--set-queue",
        "q.gpu.quota=2",
        lambda: waits(queues=[queue("q", quota={"gpu": 1})], groups={"x": FIRM}),
        "+x",
        2,
    ),
    # A queue without weight is owed nothing of the surplus, so x may no longer reclaim.
    Row("--set-queue", "a.gpu.weight=0", borrowed, "+b2 +b3 -x", 4),
    Row("--set-queue", "b.priority=200", two_queues, "+y -x", 2),
    Row("--set-queue", "b.reclaimMinRuntime=1h", borrowed, "+b2 +b3 -x", 4),
    Row("--set-queue", "q.preemptMinRuntime=1h", outranked, "+a -x", 2),
    Row("--add", "new.json", full, "*new", 2),
    Row("--remove", "podgroup/default/a", full, "+x", 2),
    Row("--stop", "pod/default/a", full, "+x", 2),
    Row("--move", "pod/default/a=n1", full, "+x", 3),
    Row("--set-priority", "podgroup/default/x=51", equals, "+x -a", 2),
    Row("--set-topology", "podgroup/default/x=zone", racks, "+x", 2),
    Row("--set-topology", "podgroup/default/x=", racks, "+x", 2),
    Row("--set-request", "podgroup/default/x.gpu=1", full, "+x", 2),
    Row("--set-min-member", "podgroup/default/x=1", gang, "+x", 1),
    Row(
        "--tolerate",
        "podgroup/default/x=keep",
        lambda: waits(one=node("n0", gpus=2, taints=[TAINT])),
        "+x",
        2,
    ),
    Row(
        "--drop-selector",
        "podgroup/default/x=disk",
        lambda: waits(pod("x", gpus=2, nodeSelector={"disk": "fast"})),
        "+x",
        2,
    ),
    Row("--set-group-queue", "podgroup/default/x=q", lambda: waits(pod("x", gpus=2, queue="typo")), "+x", 2),
    Row(
        "--ungate",
        "podgroup/default/x",
        lambda: waits(pod("x", gpus=2, schedulingGates=[{"name": "quota"}])),
        "+x",
        2,
    ),
    Row("--clear-backoff", "podgroup/default/x", backed_off, "+x", 2),
    Row("--create", "configmap/default/c", without_config_map, "+x", 2),
    Row("--enable", "preempt", lambda: {**outranked(), "config": equals_config("allocate")}, "+x -a", 2),
    Row("--disable", "preempt", outranked, "+a -x", 2),
    Row("--after", "20m", ending, "+x", 2),
    Row("--at", "2026-11-20T12:20:00Z", ending, "+x", 2),
]
IN_JSON_ALONE = [
    ([{"op": "set-preemptibility", "podGroup": "default/x", "value": "preemptible"}],
     lambda: waits(queues=[queue("q", quota={"gpu": 1})], groups={"x": FIRM})),
    ([{"op": "set-subgroup", "podGroup": "default/x", "from": "wrong", "subGroup": "right"}], mislabelled),
]  # fmt: skip


def equals_config(actions: str) -> raw.Object:
    """The configuration with other actions."""
    return raw.config(actions, spread=False, minruntime={}, proportion={})


def effect_of(world: raw.Object, ops: list[raw.Object]) -> tuple[str, float]:
    """What a what-if says about operations."""
    diff = whatif(Cycles(Settings()), Draft(world, NOW), ops)[0]["diff"]
    signs = (("+", "gain"), ("-", "lose"), ("*", "addedPlaced"))
    words = [f"{sign}{name.removeprefix('default/')}" for sign, key in signs for name in diff[key]]
    return " ".join(words), diff["gpusAfter"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.option} {row.value}")
def test_an_operation_does_what_its_name_says(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"kind": "List", "items": NEW}))
    ops = operation(row.option, str(path) if row.option == "--add" else row.value, NOW)
    assert effect_of(row.world(), ops) == (row.effect, row.gpus)
    # In words it says more than the name of the operation.
    assert describe({"ops": ops}) != ops[0]["op"]


@pytest.mark.parametrize(("ops", "world"), IN_JSON_ALONE)
def test_operations_of_fixes_alone(ops: list[raw.Object], world: Callable[[], raw.Object]) -> None:
    assert effect_of(world(), ops) == ("+x", 2)


def test_every_operation_is_tried() -> None:
    assert {row.option for row in ROWS} == OPTIONS.keys()
    made = {row.option.removeprefix("--") for row in ROWS} - {"after", "enable", "disable"}
    alone = {str(op["op"]) for ops, _ in IN_JSON_ALONE for op in ops}
    assert made | alone | {"enable-action", "disable-action"} == set(KNOWN)


def test_operations_apply_in_the_order_in_which_they_stand() -> None:
    """A copy of a cordoned node is schedulable; if the copy is cordoned afterwards, it is not."""
    cordon: list[raw.Object] = [{"op": "cordon", "nodes": ["n0"]}]
    add: list[raw.Object] = [{"op": "add-nodes", "like": "n0", "count": 1}]
    assert effect_of(waits(), cordon + add) == ("", 2)
    assert effect_of(waits(), add + cordon + [{"op": "cordon", "nodes": ["n0-copy-1"]}]) == ("-x", 0)


BAD = [
    ("--add-nodes", "n9=1", waits, ["n9", "n0"]),
    ("--add-nodes", "n0", waits, ["NODE=COUNT"]),
    ("--add-nodes", "n0=0", waits, ["0 copies of n0; 1 to 10,000 may be added"]),
    ("--remove-nodes", "n9", waits, ["n9", "n0"]),
    ("--drain", "n9", waits, ["n9", "n0"]),
    ("--cordon", "n9", waits, ["n9", "n0"]),
    ("--cordon", ",", waits, ["names nothing"]),
    ("--uncordon", "n9", waits, ["n9", "n0"]),
    ("--untaint", "n9=keep", waits, ["n9", "n0"]),
    ("--untaint", "n0=keeper", lambda: waits(one=node("n0", taints=[TAINT])), ["keeper", "keep"]),
    ("--set-queue", "p.gpu.limit=1", waits, ["queue p", "q"]),
    ("--set-queue", "q.gpus.limit=1", waits, ["QUEUE.RESOURCE.limit", "cpu, memory, gpu"]),
    ("--set-queue", "q.gpu.limits=1", waits, ["limits", "quota, limit, weight"]),
    ("--set-queue", "q.gpu.limit=many", waits, ["'many'"]),
    ("--set-queue", "q.reclaimMinRuntime=soon", waits, ["'soon'", "30m"]),
    ("--remove", "podgroup/default/y", waits, ["default/y", "default/x"]),
    ("--remove", "x", waits, ["podgroup/NAMESPACE/NAME", "'x'"]),
    ("--stop", "pod/default/y", waits, ["default/y", "default/x"]),
    ("--move", "pod/default/y=n0", full, ["default/y", "default/x"]),
    ("--move", "pod/default/a=n9", full, ["n9", "n0"]),
    ("--move", "pod/default/x=n0", full, ["default/x", "does not run"]),
    ("--set-priority", "podgroup/default/y=1", waits, ["default/y", "default/x"]),
    ("--set-priority", "podgroup/default/x=high", waits, ["'high' is not a priority"]),
    ("--set-topology", "podgroup/default/y=rack", racks, ["default/y", "default/x"]),
    ("--set-topology", "podgroup/default/x=rock", racks, ["rock", "rack"]),
    ("--set-topology", "podgroup/default/x=rack", waits, ["default/x names no topology"]),
    ("--set-request", "podgroup/default/x.gpu=few", waits, ["few"]),
    ("--set-request", "podgroup/default/y.gpu=1", waits, ["default/y"]),
    ("--set-min-member", "podgroup/default/x=one", gang, ["'one'"]),
    ("--set-min-member", "podgroup/default/y=1", gang, ["default/y", "default/x"]),
    (
        "--tolerate",
        "podgroup/default/x=keeper",
        lambda: waits(one=node("n0", taints=[TAINT])),
        ["keeper", "keep"],
    ),
    ("--tolerate", "podgroup/default/y=keep", lambda: waits(one=node("n0", taints=[TAINT])), ["default/y"]),
    (
        "--drop-selector",
        "podgroup/default/x=dusk",
        lambda: waits(pod("x", nodeSelector={"disk": "fast"})),
        ["dusk", "disk"],
    ),
    ("--set-group-queue", "podgroup/default/x=p", waits, ["queue p", "q"]),
    ("--ungate", "podgroup/default/y", waits, ["default/y"]),
    ("--ungate", "podgroup/default/x", waits, ["default/x has no scheduling gates"]),
    ("--clear-backoff", "podgroup/default/x", waits, ["default/x has no scheduling backoff"]),
    ("--clear-backoff", "podgroup/default/y", backed_off, ["default/y", "default/x"]),
    ("--create", "secret/default/c", waits, ["KIND/NAMESPACE/NAME", "ConfigMap"]),
    ("--enable", "preemt", waits, ["preemt", "preempt"]),
    ("--disable", "reclaims", waits, ["reclaims", "reclaim"]),
    ("--after", "soon", waits, ["'soon'", "30m"]),
    ("--after", "-1h", waits, ["-1h", "below zero"]),
    ("--after", "1000000d", waits, ["1000000d", "at most 292 years"]),
    ("--at", "noon", waits, ["'noon'", "2026-"]),
    ("--at", "2026-11-20T11:59:59Z", waits, ["the snapshot is from 2026-11-20T12:00:00Z"]),
    ("--add", "nowhere.yaml", waits, ["nowhere.yaml"]),
]


@pytest.mark.parametrize(("option", "value", "world", "said"), BAD, ids=[f"{row[0]} {row[1]}" for row in BAD])
def test_a_missing_object_is_named_with_the_nearest_name(
    option: str, value: str, world: Callable[[], raw.Object], said: list[str]
) -> None:
    with pytest.raises(BadOperation) as refused:
        applied(world(), operation(option, value, NOW), NOW)
    assert [part for part in said if part not in str(refused.value)] == []
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, BadFile) == (option == "--add")


def test_bad_values_are_tried_of_every_option() -> None:
    assert {row[0] for row in BAD} == OPTIONS.keys()


def test_a_move_must_be_possible_by_itself() -> None:
    """n1 has one GPU, and b already holds it."""
    world = cluster(
        [node("n0", gpus=2), node("n1", gpus=1)],
        [pod("a", "n0", gpus=1), pod("b", "n1", gpus=1), pod("x", gpus=2)],
        groups={"a": FIRM, "b": FIRM},
    )
    to_n1 = [{"pod": "default/a", "node": "n1"}]
    with pytest.raises(BadOperation, match="default/a cannot be moved to n1"):
        effect_of(world, [{"op": "move", "moves": to_n1}])
    # Two at once may exchange places.
    both = [*to_n1, {"pod": "default/b", "node": "n0"}]
    assert effect_of(world, [{"op": "move", "moves": both}]) == ("", 2)


def test_an_existing_object_is_not_added_again() -> None:
    with pytest.raises(BadOperation, match="there is a PodGroup default/new already"):
        effect_of(full(), [{"op": "add", "objects": [*NEW, NEW[0]]}])
    with pytest.raises(BadOperation, match="there is a Queue q already"):
        effect_of(full(), [{"op": "add", "object": {"kind": "Queue", "metadata": {"name": "q"}, "spec": {}}}])


@pytest.mark.parametrize(
    ("text", "said"), [("a text", '"a text"'), ("metadata: {name: x}", "an object without kind")]
)
def test_a_document_that_cannot_be_added_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BadFile, match=rf"x\.yaml: {said}: only ConfigMap, .* can be added"):
        operation("--add", str(tmp_path / "x.yaml"), NOW)
