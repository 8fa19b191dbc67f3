"""Every example of docs/workloads.md on a real API server: it is accepted, and those of Kubernetes run."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.docs.test_workloads import EXAMPLES
from tests.e2e.workloads import Workloads, install, kubectl, shape
from tests.e2e.world import World
from tests.support.definitions import kind as resource_of

BUILT_IN = ("v1", "apps/v1", "batch/v1")
PODS = {"Deployment": 2, "Job": 4, "ReplicaSet": 1, "Pod": 1}
"""The number of pods of the kinds whose controllers this control plane runs."""


def test_every_example_is_taken_and_those_of_kubernetes_run(world: World, tmp_path: Path) -> None:
    others = [item for item in EXAMPLES.values() if item["apiVersion"] not in BUILT_IN]
    install(world, *(resource_of(*item["apiVersion"].split("/"), item["kind"]) for item in others))
    world.add_nodes(2)
    made = Workloads(world, world.add_queue())
    made.start()
    world.scheduler()
    world.binder()
    documents = []
    for item in EXAMPLES.values():
        text = yaml.safe_dump(item).replace("namespace: team-a", f"namespace: {world.namespace}")
        text = text.replace("kai.scheduler/queue: research", f"kai.scheduler/queue: {made.queue}")
        text = text.replace("kai.scheduler/queue: serving", f"kai.scheduler/queue: {made.queue}")
        document = yaml.safe_load(text)
        del document["metadata"]["uid"]
        template = document["spec"].get("template") if item["apiVersion"] in BUILT_IN[1:] else None
        for labelled in (document, template):
            if labelled is not None:  # Tests share nodes, so every pod says which nodes are its own.
                labels = labelled.setdefault("metadata", {}).setdefault("labels", {})
                labels |= world.labels
        documents.append(document)
    file = tmp_path / "examples.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    kubectl(world, "apply", "-f", str(file))
    world.until(lambda: len(world.running()) == sum(PODS.values()), f"{PODS} run")
    shapes = {name: shape(group) for name, group in made.groups().items()}
    assert shapes["pg-train"] == {"minMember": 4}
    for name in ("pg-old", "pg-shell"):
        assert shapes[name] == {"minMember": 1}
    assert sum(name.startswith("pg-web-") for name in shapes) == 2
    assert not world.events("PodGrouperWarning")
