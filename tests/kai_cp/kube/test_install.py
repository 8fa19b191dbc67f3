"""Custom resource definitions: installed, left alone if they exist, and printed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kai_cp.json_types import Object
from kai_cp.kube import install
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import NotReachable
from kai_cp.kube.cli import app
from tests.kai_cp.kube.stub import StubServer


def test_definitions_that_are_there_stay(server: StubServer) -> None:
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    theirs = {
        "metadata": {"name": "queues.scheduling.run.ai"},
        "spec": {"theirs": True},
        "status": established,
    }
    server.put(r.CRDS, theirs)

    over = threading.Event()

    def establish() -> None:
        while not over.wait(0.02):
            for path, item in list(server.objects.items()):
                if "status" not in item:
                    server.store(path, {**item, "status": established})

    thread = threading.Thread(target=establish)
    thread.start()
    try:
        done = install.install(server.transport("admin"))
    finally:
        over.set()
        thread.join()
    assert done["queues.scheduling.run.ai"] is False
    assert sum(done.values()) == len(done) - 1
    kept = server.get(r.CRDS, "", "queues.scheduling.run.ai")
    assert kept is not None
    assert kept["spec"] == {"theirs": True}


def test_a_cluster_that_does_not_answer_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: object) -> dict[str, bool]:
        raise NotReachable("POST: connection refused")

    monkeypatch.setattr(install, "install", silent)
    cluster = {"name": "a", "cluster": {"server": "https://127.0.0.1:9"}}
    config = {"clusters": [cluster], "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}
    file = tmp_path / "kubeconfig"
    user = {"name": "a", "user": {"token": "x"}}
    file.write_text(yaml.safe_dump(config | {"current-context": "a", "users": [user]}))
    done = CliRunner().invoke(app, ["crds", "--apply", "--kubeconfig", str(file)])
    assert (done.exit_code, done.stderr) == (3, "kai-cp: POST: connection refused\n")


def test_definitions_can_be_printed() -> None:
    printed = CliRunner().invoke(app, ["crds"])
    assert printed.exit_code == 0
    assert len(list(yaml.safe_load_all(printed.stdout))) == 6


def fields(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """All fields below a schema with their paths."""
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from fields(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], path)


@pytest.mark.parametrize(
    "definition", [found for _, found in install.definitions()], ids=lambda d: d["metadata"]["name"]
)
def test_kubectl_explains_every_field(definition: Object) -> None:
    """The API server itself describes the three fields that all objects have."""
    common = {".apiVersion", ".kind", ".metadata"}
    for version in definition["spec"]["versions"]:
        found = dict(fields(version["schema"]["openAPIV3Schema"]))
        assert len(found) > len(common)
        assert {path for path, part in found.items() if len(part.get("description", "")) < 5} == common


@pytest.mark.parametrize("field", ["nodeLabel", "alias"])
@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("rack", True),
        ("cloud.provider.com/topology-block", True),
        ("A.b_c-d", True),
        ("", False),
        ("a b", False),
        ("-rack", False),
        ("Cloud/rack", False),
        ("a/b/c", False),
    ],
)
def test_a_level_is_named_like_a_label(field: str, text: str, good: bool) -> None:
    (topologies,) = (
        d for _, d in install.definitions() if d["metadata"]["name"] == "topologies.kai.scheduler"
    )
    schema = topologies["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    level = dict(fields(schema))[f".spec.levels.{field}"]
    assert bool(re.search(level["pattern"], text)) is good
