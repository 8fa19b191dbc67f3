"""Manifests of ``kai-cp admit`` and ``kai-cp group``: one bad document is named, and stops no other one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kai_cp.cli.app import app

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "ns", "uid": "1", "annotations": {"gpu-fraction": "half"}},
    "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
}
QUEUE = {"kind": "Queue", "metadata": {"name": "q"}, "spec": {}}


def ran(*words: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=text)


def answers(text: str) -> list[Any]:
    """The documents that stand one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([POD, QUEUE]),
        json.dumps({"kind": "List", "items": [POD, QUEUE]}),
        json.dumps({"kind": "PodList", "items": [POD, QUEUE]}),
        f"{json.dumps(POD)}\n---\n{json.dumps(QUEUE)}\n---\n",
        "\ufeff" + json.dumps([POD, QUEUE], indent=1).replace("\n", "\r\n"),
    ],
)
def test_every_object_of_a_file_gets_its_verdict(tmp_path: Path, content: str) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(content, "utf-8", newline="")
    done = ran("admit", file, "--gpu-sharing")
    said = [(one["kind"], one.get("namespace"), one["name"], one["allowed"]) for one in answers(done.stdout)]
    assert said == [("Pod", "ns", "a", False), ("Queue", None, "q", False)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no object"),
        (b"\n ", "holds no object"),
        (b"\xff\xfe", "neither JSON nor YAML: it is not text"),
    ],
)
@pytest.mark.parametrize("name", ["objects.json", "objects.yaml"])
def test_a_file_without_objects_is_told_in_plain_words(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    """The parser of JSON spoke of zero-length documents and surrogates."""
    (tmp_path / name).write_bytes(content)
    done = ran("admit", tmp_path / name)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kai-cp: {tmp_path / name}: {said}")


def test_a_file_of_several_objects_keeps_all_verdicts(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text(json.dumps([POD, QUEUE]))
    ran("admit", tmp_path / "two.json", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "two.json").read_text())
    assert [one["kind"] for one in written] == ["Pod", "Queue"]


def test_a_pipeline_sees_by_the_status_and_a_line_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    whole = {**POD, "metadata": {**POD["metadata"], "annotations": {"gpu-fraction": "0.5"}}}  # type: ignore[dict-item]
    file.write_text(json.dumps([whole]))
    done = ran("admit", file, "--gpu-sharing")
    assert (done.exit_code, done.stderr) == (0, "")
    file.write_text(json.dumps([whole, POD, QUEUE]))
    done = ran("admit", file, "--gpu-sharing")
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()
    assert first.startswith(f"kai-cp: {file}: Pod ns/a is refused: ")
    assert second.startswith(f"kai-cp: {file}: Queue q is refused: ")
    assert len(answers(done.stdout)) == 3


@pytest.mark.parametrize(
    ("command", "bad", "field"),
    [
        ("admit", 3, "expected an object"),
        ("admit", {"metadata": {"name": "x"}}, "kind: is missing"),
        ("admit", {"kind": 7}, "kind: 7 is not a string"),
        ("admit", {"object": None}, "object: is missing"),
        ("admit", {"object": POD, "operation": "FLY"}, "operation: "),
        ("admit", {"object": POD, "settings": [1]}, "settings: [1] is not an object"),
        ("admit", {"kind": "AdmissionReview"}, "request.object: is missing"),
        ("group", "text", "expected an object"),
        ("group", {"kind": "Pod"}, "metadata.name: is missing"),
        ("group", {"kind": "Pod", "metadata": {"name": 5}}, "metadata.name: 5 is not a string"),
        ("group", {"kind": "Job", "metadata": 5}, "metadata: 5 is not an object"),
        ("group", {"kind": "PodGroup", "metadata": {"name": "x", "namespace": []}}, "metadata.namespace"),
    ],
)
def test_a_bad_document_is_named_and_stops_no_other(
    tmp_path: Path, command: str, bad: Any, field: str
) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps([bad, POD]))
    done = ran(command, file)
    assert done.exit_code == 1
    assert f"{file}: document 1, item 1: {field}" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "is refused" not in line]) == 1
    assert answers(done.stdout)


@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
@pytest.mark.parametrize("field", ["quota", "limit", "overQuotaWeight"])
def test_an_amount_of_a_queue_that_is_no_number_is_refused(tmp_path: Path, resource: str, field: str) -> None:
    file = tmp_path / "queue.json"
    file.write_text(json.dumps({**QUEUE, "spec": {"resources": {resource: {field: "lots"}}}}))
    done = ran("admit", file)
    assert done.exit_code == 1
    assert f"Queue q is refused: Queue cannot be read: spec.resources.{resource}.{field}: " in done.stderr
    file.write_text(json.dumps({**QUEUE, "spec": {"resources": {resource: {field: -1}}}}))
    assert ran("admit", file).exit_code == 0


@pytest.mark.parametrize("command", ["admit", "group"])
def test_a_whole_snapshot_is_told_where_it_belongs(tmp_path: Path, command: str) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"config": {}, "rawObjects": {"pods": [POD]}}))
    done = ran(command, file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{file}: this is a snapshot; expected manifests" in done.stderr
    packed = tmp_path / "snapshot.json.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    done = ran(command, packed)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{packed}: is packed, as snapshots are; expected manifests" in done.stderr


def test_a_number_beyond_64_bits_and_a_key_that_is_none_are_named(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(f"spec: {2**70}\n---\n1: x\n---\n{json.dumps(POD)}\n")
    done = ran("group", file)
    assert done.exit_code == 1
    assert [line.split(": ")[2] for line in done.stderr.splitlines()] == ["document 1", "document 2"]
    assert len(answers(done.stdout)[0]["pods"]) == 1


def test_a_date_without_quotes_is_the_text_that_an_api_server_takes(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "kind: Pod\napiVersion: v1\nmetadata: {name: a, namespace: n, uid: '1', labels: {x: 2026-11-20}}\n"
        "spec: {schedulerName: kai-scheduler}\n"
    )
    done = ran("group", file)
    assert done.exit_code == 0, done.stderr
    assert answers(done.stdout)[0]["pods"][0]["labels"]["x"] == "2026-11-20"


def test_a_review_is_judged_by_its_object() -> None:
    asked = {"uid": "1", "operation": "DELETE", "oldObject": {**QUEUE, "status": {"childQueues": ["x"]}}}
    done = ran("admit", "-", text=json.dumps({"kind": "AdmissionReview", "request": asked}))
    assert done.exit_code == 1, "it is refused"
    assert "cannot delete queue q" in answers(done.stdout)[0]["message"]


@pytest.mark.parametrize(
    "spec", [5, {"forbidden": [3]}, {"schedulerName": 1}, {"podLabelSelector": {"a": 1}}]
)
def test_settings_of_a_file_that_cannot_be_read_are_named(tmp_path: Path, spec: Any) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps([{"kind": "GroupingSettings", "spec": spec}, POD]))
    done = ran("group", file)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"kai-cp: {file}: GroupingSettings: spec")


def test_a_pod_that_cannot_be_grouped_is_named_on_standard_error(tmp_path: Path) -> None:
    """Without a uid no pod group can be named after it."""
    pods = [POD, {**POD, "metadata": {"name": "b", "namespace": "ns"}}]
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    done = ran("group", tmp_path / "pods.json")
    assert done.exit_code == 1
    assert "pods.json: pod ns/b: Pod ns/b: metadata.uid: is missing" in done.stderr
    assert [one["pod"] for one in json.loads(done.stdout)["errors"]] == ["ns/b"]
    assert len(json.loads(done.stdout)["podGroups"]) == 1


def test_a_file_without_pods_is_named_as_it_gets_no_pod_groups(tmp_path: Path) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns", "uid": "2"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = ran("group", tmp_path / "job.json")
    assert done.exit_code == 0
    assert "job.json: holds no pods" in done.stderr


def test_a_file_of_kinds_without_keys_is_refused_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "kinds.yaml").write_text("text")
    (tmp_path / "pods.json").write_text(json.dumps(POD))
    done = ran("group", tmp_path / "pods.json", "--workload-kinds", tmp_path / "kinds.yaml")
    assert done.exit_code == 2
    assert done.stderr == f"kai-cp: {tmp_path / 'kinds.yaml'}: expected keys and values, not 'text'\n"
