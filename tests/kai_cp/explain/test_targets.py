"""What users ask about is found by the name that they know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kai_cp.explain.draft import BadOperation
from kai_cp.explain.targets import AskedName, owned_groups, target_of
from kai_cp.kube.plugin.command import _with_namespace
from tests.kai_cp.explain.clusters import cluster
from tests.kai_cp.test_cli import run
from tests.support.tiny import node, pod

NOW = "2026-11-20T12:00:00Z"


def owned_by(item: dict[str, Any], kind: str, name: str) -> None:
    item["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u"}]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Job train owns pod group x, set owns the pods of y and z, and both namespaces have a pod group x."""
    pods = [*(pod(name, gpus=3) for name in ("x", "y", "z")), pod("z-0", gpus=3, group="z")]
    world = cluster([node("n0", gpus=2)], pods)
    raw = world["rawObjects"]
    owned_by(next(g for g in raw["podGroups"] if g["metadata"]["name"] == "x"), "Job", "train")
    for one in raw["pods"]:
        if one["metadata"]["name"] in ("y", "z"):
            owned_by(one, "ReplicaSet", "set")
    for items in (raw["podGroups"], raw["pods"]):
        twin = json.loads(json.dumps(next(i for i in items if i["metadata"]["name"] == "x")))
        twin["metadata"] |= {"namespace": "other", "uid": f"{twin['metadata'].get('uid')}-twin"}
        items.append(twin)
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(world))
    return path


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("podgroup/default/x", ["default/x"]),
        ("other/x", ["other/x"]),
        ("y", ["default/y"]),
        ("podgroup/y", ["default/y"]),
        ("z-0", ["default/z"]),
        ("default/z-0", ["default/z"]),
        ("set", ["default/y", "default/z"]),
        ("other/train", ["other/x"]),
        ("pod/z", ["default/z"]),
        ("job/default/train", ["default/x"]),
        ("Job/other/train", ["other/x"]),
        ("replicaset/set", ["default/y", "default/z"]),
    ],
)
def test_a_name_that_is_known_finds_its_pod_groups(snapshot: Path, text: str, groups: list[str]) -> None:
    done = run("explain", snapshot, text, "--no-fixes", "--now", NOW, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry["podGroup"] for entry in json.loads(done.stdout)["explanations"]] == groups


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "several have this name: podgroup/default/x, podgroup/other/x"),
        ("job/train", "several have this name: job/default/train, job/other/train"),
        ("job/default/trainn", "there is no job default/trainn; the nearest: default/train"),
        ("yy", "there is no pod group, pod or workload yy; the nearest: y"),
        ("podgrup/default/y", "there is nothing of kind podgrup; the nearest: podgroup, pod"),
        ("podgroup/yy", "there is no podgroup yy; the nearest: y"),
        ("a/b/c/d", "a/b/c/d: expected [KIND/][NAMESPACE/]NAME, such as job/team-a/train"),
        ("job//x", "expected [KIND/][NAMESPACE/]NAME"),
    ],
)
def test_a_name_that_is_unknown_or_no_single_one_is_told(snapshot: Path, text: str, said: str) -> None:
    done = run("explain", snapshot, text, "--no-fixes", "--now", NOW)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize("text", ["x", "podgroup/default/x"])
def test_a_pod_group_without_a_usable_pod_does_not_run(tmp_path: Path, text: str) -> None:
    world = cluster([node("n0", gpus=2)], [pod("x", gpus=3, notes={"gpu-fraction": "half"})])
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(world))
    done = run("explain", path, text, "--no-fixes", "--now", NOW)
    assert (done.returncode, done.stdout) == (1, "")
    said = "podgroup default/x has no pod that runs or waits; pod default/x is left out of all decisions: "
    assert said + "metadata.annotations[gpu-fraction]" in done.stderr
    world["rawObjects"]["pods"] = []
    path.write_text(json.dumps(world))
    done = run("explain", path, text, "--no-fixes", "--now", NOW)
    assert done.stderr.endswith("kai-cp: podgroup default/x has no pod that runs or waits\n")


@pytest.mark.parametrize("text", ["job/other/train", "pod/z"])
@pytest.mark.parametrize("command", [("reserve",), ("what-if", "--least", "nodes:n0")])
def test_every_command_knows_the_same_names(snapshot: Path, command: tuple[str, ...], text: str) -> None:
    name, *more = command
    done = run(name, snapshot, *more, "--for", text, "--now", NOW)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [("reserve",), ("what-if", "--least", "nodes:n0")])
def test_every_command_says_the_same_of_a_name_that_means_several(
    snapshot: Path, command: tuple[str, ...]
) -> None:
    name, *more = command
    done = run(name, snapshot, *more, "--for", "x", "--now", NOW)
    said = "kai-cp: --for: several have this name: podgroup/default/x, podgroup/other/x\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_of_two_parts_the_first_is_a_kind_only_where_there_are_such_objects() -> None:
    owned = {("job", "a/train"): ["a/x"]}
    assert target_of("job/x", owned) == AskedName("job", "", "x")
    assert target_of("job/x", {}) == AskedName("", "job", "x")
    with pytest.raises(BadOperation):
        target_of("", owned)


@pytest.mark.parametrize("owners", [None, 5, [5], [{"kind": 5}]])
def test_owners_that_are_none_do_no_harm(owners: Any) -> None:
    group = {"metadata": {"name": "x", "namespace": "a", "ownerReferences": owners}}
    assert all(groups == ["a/x"] for groups in owned_groups({"rawObjects": {"podGroups": [group]}}).values())
    assert owned_groups({"rawObjects": {"podGroups": [5], "pods": None}}) == {}


def test_kubectl_names_the_namespace_of_what_is_asked_about_and_of_nothing_else() -> None:
    words = ["--config", "a/b.yaml", "--no-fixes", "job/train", "-o", "json"]
    assert _with_namespace(words, "ns") == [
        "--config",
        "a/b.yaml",
        "--no-fixes",
        "job/ns/train",
        "-o",
        "json",
    ]
    assert _with_namespace(["train", "--kinds", "wait"], "ns") == ["ns/train", "--kinds", "wait"]
    assert _with_namespace(["pod/other/x-0", "--all"], "ns") == ["pod/other/x-0", "--all"]
