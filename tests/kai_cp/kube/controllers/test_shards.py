"""A SchedulingShard becomes a Deployment, follows changes, and reports its state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.cli import app
from kai_cp.kube.controllers.base import Context
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.shard_objects import contained, plan
from kai_cp.kube.controllers.shards import LOOK_SECONDS, WAITING_SECONDS, ShardController
from kai_cp.reader.fields import Malformed
from tests.kai_cp.kube.conftest import until
from tests.kai_cp.kube.stub import StubServer

IMAGE = "registry/kai-cp:1"
SETUP = ControllerOptions(shard_image=IMAGE, shard_mode="enforce")
ARGUMENTS = {
    "full-hierarchy-fairness": "false",
    "update-pod-eviction-condition": "true",
    "default-staleness-grace-period": "2m",
    "max-consolidation-preemptees": "4",
}


def shard(name: str = "a100", generation: int = 1, **spec: Any) -> dict[str, Any]:
    """A shard."""
    meta = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"kind": "SchedulingShard", "metadata": meta, "spec": spec}


def arguments(deployment: dict[str, Any]) -> list[str]:
    """Its command line."""
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_the_command_line_is_one_that_the_scheduler_takes() -> None:
    made = plan(shard(partitionLabelValue="a100", args=ARGUMENTS), {}, SETUP)
    assert made.problems == ()
    command: Any = typer.main.get_command(app)
    scheduler = command.commands["scheduler"]
    words = arguments(made.deployment)[1:]
    with scheduler.make_context("scheduler", words) as context:
        parsed = context.params
    assert parsed["partition_label_value"] == "a100"
    assert parsed["shard"] == "a100"
    assert parsed["full_hierarchy_fairness"] is False
    assert parsed["update_pod_eviction_condition"] is True
    assert parsed["default_staleness_grace_period"] == 120.0
    assert parsed["max_consolidation_preemptees"] == 4


def test_flags_that_are_not_followed_are_named() -> None:
    made = plan(
        shard(args={"nonsense": "1", "scheduler-name": "x", "v": "5", "detailed-fit-errors": "x"}), {}, SETUP
    )
    assert [problem.partition(":")[0] for problem in made.problems] == [
        "spec.args[detailed-fit-errors]",
        "spec.args[nonsense]",
        "spec.args[scheduler-name]",
    ]


def test_the_config_gives_what_all_shards_have_in_common() -> None:
    config = {
        "global": {
            "schedulerName": "mine",
            "nodePoolLabelKey": "pool",
            "replicaCount": 3,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "imagesPullSecret": "one",
            "additionalImagePullSecrets": ["two", "one"],
            "priorityClassName": "high",
        },
        "scheduler": {"service": {"resources": {"limits": {"memory": "9Gi"}}}},
    }
    made = plan(shard(), config, SETUP).deployment
    assert made["spec"]["replicas"] == 3
    spec = made["spec"]["template"]["spec"]
    assert {"--scheduler-name=mine", "--nodepool-label-key=pool"} <= set(arguments(made))
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert spec["priorityClassName"] == "high"
    assert spec["containers"][0]["resources"] == {"limits": {"memory": "9Gi"}}
    config["scheduler"]["replicas"] = 1  # type: ignore[assignment]
    assert plan(shard(), config, SETUP).deployment["spec"]["replicas"] == 1


ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4)


@given(ANY, ANY, ANY)
def test_nonsense_is_malformed_and_nothing_else(args: Any, common: Any, value: Any) -> None:
    with contextlib.suppress(Malformed):
        plan(shard(args=args, partitionLabelValue=value), {"global": common, "scheduler": common}, SETUP)


def test_fields_that_the_server_fills_in_are_no_difference() -> None:
    assert contained({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3})
    assert not contained({"a": [{"b": 1}]}, {"a": [{"b": 1}, {"b": 2}]})
    assert not contained({"a": {}}, {"a": None})


class Setup:
    def __init__(self, server: StubServer) -> None:
        self.server = server
        transport = server.transport("shards")
        self.informers = Informers(transport)
        self.writer = BackgroundWriter(1)
        recorder = Recorder(transport, self.writer, "test")
        options = ControllerOptions(shard_image=IMAGE)
        context = Context(
            transport, self.informers, recorder, CollectorRegistry(), options, lambda _keys: None
        )
        self.controller = ShardController(context)
        self.informers.start()
        until(lambda: not self.informers.missing())

    def known(self, resource: Any, key: tuple[str, str], version: str) -> bool:
        found = self.informers.store(resource).get(key)
        return found is not None and found["metadata"]["resourceVersion"] == version

    def put(self, item: dict[str, Any], resource: Any = r.SHARDS) -> None:
        stored = self.server.put(resource, item)
        key = ("", stored["metadata"]["name"])
        until(lambda: self.known(resource, key, stored["metadata"]["resourceVersion"]))

    def deployment(self, name: str = "a100") -> dict[str, Any]:
        found = self.server.get(r.DEPLOYMENTS, "kai-scheduler", f"kai-cp-scheduler-{name}")
        assert found is not None
        return found

    def conditions(self, name: str = "a100") -> dict[str, tuple[str, str]]:
        found = self.server.get(r.SHARDS, "", name) or {}
        listed = (found.get("status") or {}).get("conditions") or ()
        return {c["type"]: (c["status"], c["message"]) for c in listed}

    def writes(self) -> int:
        return sum(len(self.server.requests(method)) for method in ("POST", "PUT", "PATCH"))


@pytest.fixture
def setup(server: StubServer) -> Iterator[Setup]:
    made = Setup(server)
    yield made
    made.informers.stop()
    made.writer.stop()


KEY = ("", "a100")


def test_a_shard_makes_changes_and_reports(setup: Setup) -> None:
    setup.put(shard())
    assert setup.controller.reconcile(KEY, 0) == WAITING_SECONDS
    made = setup.deployment()
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-a100"
    assert setup.conditions()["Deployed"] == ("True", "Resources deployed")
    assert setup.conditions()["Ready"][0] == "False"
    ready = {"updatedReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}
    setup.server.put(r.DEPLOYMENTS, {**made, "status": ready})
    assert setup.controller.reconcile(KEY, 0) == LOOK_SECONDS
    assert setup.conditions()["Ready"] == ("True", "System is ready")
    before = setup.writes()
    assert setup.controller.reconcile(KEY, 0) == LOOK_SECONDS
    assert setup.writes() == before, "an unchanged shard is not written to"

    stored = setup.server.get(r.SHARDS, "", "a100") or {}
    changed = shard(generation=2, partitionLabelValue="b", args={"nonsense": "1"})
    setup.put({**stored, "spec": changed["spec"], "metadata": {**stored["metadata"], "generation": 2}})
    setup.controller.reconcile(KEY, 0)
    assert "--partition-label-value=b" in arguments(setup.deployment())
    assert setup.deployment()["status"] == ready
    assert "nonsense" in setup.conditions()["Deployed"][1]


def test_a_deployment_that_is_changed_or_deleted_comes_back(setup: Setup) -> None:
    setup.put(shard())
    setup.controller.reconcile(KEY, 0)
    made = setup.deployment()
    setup.server.put(r.DEPLOYMENTS, {**made, "spec": {**made["spec"], "replicas": 7}})
    setup.controller.reconcile(KEY, 0)
    assert setup.deployment()["spec"]["replicas"] == 1
    setup.server.remove(r.DEPLOYMENTS, "kai-scheduler", "kai-cp-scheduler-a100")
    setup.controller.reconcile(KEY, 0)
    assert setup.deployment()["spec"]["replicas"] == 1


def test_a_foreign_deployment_is_left_alone_and_reported(setup: Setup) -> None:
    theirs = {"metadata": {"name": "kai-cp-scheduler-a100", "namespace": "kai-scheduler"}, "spec": {"a": 1}}
    setup.server.put(r.DEPLOYMENTS, theirs)
    setup.put(shard())
    assert setup.controller.reconcile(KEY, 0) == WAITING_SECONDS
    assert setup.deployment()["spec"] == {"a": 1}
    assert setup.conditions()["Deployed"][0] == "False"
    assert "is not this shard's" in setup.conditions()["Deployed"][1]
    setup.server.remove(r.DEPLOYMENTS, "kai-scheduler", "kai-cp-scheduler-a100")
    setup.controller.reconcile(KEY, 0)
    assert setup.conditions()["Deployed"][0] == "True"


def test_a_bad_field_is_reported_and_affects_its_shard_only(setup: Setup) -> None:
    setup.put(shard(args={"v": 5}))
    setup.put(shard("other"))
    assert setup.controller.reconcile(KEY, 0) is None
    status, message = setup.conditions()["Deployed"]
    assert status == "False"
    assert "spec.args[v]" in message
    setup.controller.reconcile(("", "other"), 0)
    assert setup.deployment("other")


LIMITED = {"service": {"resources": {"limits": {"memory": "1Gi"}}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"global": {"nodeSelector": {"pool": "old"}}}, {}),
        (
            {"global": {"nodeSelector": {"pool": "old", "zone": "a"}}},
            {"global": {"nodeSelector": {"zone": "a"}}},
        ),
        ({"global": {"affinity": {"nodeAffinity": {"a": 1}}}}, {}),
        ({"global": {"tolerations": [{"operator": "Exists"}]}}, {}),
        ({"global": {"imagesPullSecret": "s"}}, {}),
        (
            {"scheduler": {"service": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}}},
            {"scheduler": LIMITED},
        ),
    ],
)
def test_a_field_that_the_config_has_no_more_goes(setup: Setup, before: Any, after: Any) -> None:
    config: dict[str, Any] = {"metadata": {"name": "kai-config"}}
    setup.put({**config, "spec": before}, r.CONFIGS)
    setup.put(shard())
    setup.controller.reconcile(KEY, 0)
    made = setup.deployment()
    made["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = "1"
    made["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    setup.server.put(r.DEPLOYMENTS, made)
    writes = setup.writes()
    setup.controller.reconcile(KEY, 0)
    assert setup.writes() == writes, "what the server and others add is no difference"
    setup.put({**config, "spec": after}, r.CONFIGS)
    setup.controller.reconcile(KEY, 0)
    found = setup.deployment()
    assert found["spec"] == plan(shard(), after, ControllerOptions(shard_image=IMAGE)).deployment["spec"]
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"


def test_the_config_changes_every_shard_and_its_end_changes_none(setup: Setup) -> None:
    setup.put(shard())
    setup.put({"metadata": {"name": "kai-config"}, "spec": {"global": {"replicaCount": 2}}}, r.CONFIGS)
    setup.controller.reconcile(KEY, 0)
    assert setup.deployment()["spec"]["replicas"] == 2
    setup.server.remove(r.SHARDS, "", "a100")
    until(lambda: setup.informers.store(r.SHARDS).get(KEY) is None)
    assert setup.controller.reconcile(KEY, 0) is None
    assert setup.deployment(), "its end is the garbage collector's"
