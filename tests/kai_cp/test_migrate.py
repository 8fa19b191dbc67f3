"""What ``kai-cp migrate`` writes for KAI's Config, shards and Helm values."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.kube.cli import app
from kai_cp.migrate.report import Migration, migrate
from kai_cp.migrate.table import ADMISSION, CONFIG, CONTROLLERS, HELM, HELM_NOT, SHARD, VALUES
from kai_cp.migrate.text import told
from tests.kai_cp.test_cli import run

ROOT = Path(__file__).parents[2]


def config(**spec: Any) -> dict[str, Any]:
    """``kai-config``."""
    return {"kind": "Config", "metadata": {"name": "kai-config"}, "spec": spec}


def shard(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {"kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec}


def of(*documents: dict[str, Any]) -> Migration:
    return migrate([("file", document) for document in documents])


def chart_values() -> Any:
    """The chart's model of its values."""
    path = ROOT / "deploy/chart_values.py"
    spec = importlib.util.spec_from_file_location("chart_values_of_migrate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ChartValues


def test_every_target_of_the_table_exists() -> None:
    commands: Any = typer.main.get_command(app)
    flags = {
        place: {name.lstrip("-") for option in commands.commands[place].params for name in option.opts}
        for place in (CONTROLLERS, ADMISSION)
    }
    model = chart_values()
    for path, row in CONFIG.items():
        assert row.targets or row.note, path
        for place, name in row.targets:
            if place != VALUES:
                assert name in flags[place], (path, name)
                continue
            fields: Any = model
            for part in name.split("."):
                assert part in fields.model_fields, (path, name)
                fields = fields.model_fields[part].annotation


def test_flags_that_the_chart_sets_follow_from_its_values() -> None:
    """A flag alone would be one more for what the chart says, and its other parts would not hear of it."""
    for place in (CONTROLLERS, ADMISSION):
        template = (ROOT / f"deploy/chart/kai-cp/templates/{place}.yaml").read_text("utf-8")
        sets = set(re.findall(r'(?:printf|append \$args) "--([a-z-]+)', template))
        for path, row in CONFIG.items():
            if any(target.place == place and target.name in sets for target in row.targets):
                assert VALUES in {target.place for target in row.targets}, path


def test_every_helm_value_leads_to_a_row() -> None:
    for path, target in HELM.items():
        if target.startswith("shard:"):
            assert target.removeprefix("shard:") in SHARD, path
        elif not target.endswith("service.enabled"):
            star = ".".join(["*", *target.split(".")[1:]])
            assert target in CONFIG or star in CONFIG, path
    assert not HELM.keys() & HELM_NOT.keys()


def test_a_config_becomes_values_and_flags_that_the_programs_take() -> None:
    found = of(
        config(
            **{
                "global": {
                    "schedulerName": "mine",
                    "replicaCount": 3,
                    "podLabelSelector": {"a": "b", "c": "d"},
                }
            },
            admission={"gpuSharing": True, "service": {"image": {"name": "x"}}},
            nodeScaleAdjuster={"service": {"enabled": True}, "args": {"gpuMemoryToFractionRatio": 0.2}},
            queueController={"service": {"enabled": False}},
            podGrouper={"args": {"gangScheduleKnative": False}},
            binder={"resourceReservation": {"namespace": "held", "allocationTimeout": 50}},
            scheduler={"GOGC": 400},
        )
    )
    assert found.values == {
        "mode": "observe",
        "schedulerName": "mine",
        "scheduler": {"replicas": 3},
        "binder": {"replicas": 3},
        "reservation": {"namespace": "held"},
        "admission": {"gpuSharing": True},
    }
    chart_values()(**found.values)
    controllers = found.command(CONTROLLERS)
    assert "--controllers=podgrouper,podgroup-controller,node-scale-adjuster" in controllers
    assert {"--no-knative-gang-schedule", "--pod-label-selector=a=b,c=d"} <= set(controllers)
    assert found.command(ADMISSION) == ["admission", "--gpu-sharing-enabled", "--scheduler-name=mine"]
    commands: Any = typer.main.get_command(app)
    for words in (controllers, found.command(ADMISSION)):
        with commands.commands[words[0]].make_context(words[0], words[1:]):
            pass
    left = {line.partition(":")[0] for line in found.left}
    assert left == {
        "scheduler.GOGC",
        "admission.service.image",
        "binder.resourceReservation.allocationTimeout",
    }
    assert not found.unread


def test_shards_keep_their_names_and_say_what_is_missing() -> None:
    found = of(
        shard("a", partitionLabelValue="a100", kValue=1.5, goMemLimit="1Gi", args={"nonsense": "1"}),
        shard("b", usageDBConfig={"clientType": "prometheus"}, news={"x": 1}),
    )
    assert found.values["shards"] == [
        {"name": "a", "schedulingShard": "a", "nodePool": "a100"},
        {"name": "b", "schedulingShard": "b"},
    ]
    chart_values()(**found.values)
    assert any("connectionString" in line for line in found.differs)
    assert any("nonsense" in line for line in found.differs)
    assert any("goMemLimit" in line for line in found.left)
    assert found.unread == ["file: spec.news: not known to this version"]


def test_a_long_name_of_a_shard_is_shortened_for_the_chart() -> None:
    """The chart refuses a scheduler whose name is no label; two long names stay apart."""
    names = [f"{'a' * 29}-pool-{'b' * 15}{i}" for i in "12"] + ["c" * 46]
    found = of(*map(shard, names))
    one, two, three = found.values["shards"]
    assert [one["schedulingShard"], two["schedulingShard"], three["name"]] == names
    assert one["name"] != two["name"]
    assert {len(f"kai-cp-scheduler-{one['name']}") <= 63 for one in found.values["shards"]} == {True}
    assert [line.split(":")[0] for line in found.differs] == [f"shard {name}" for name in names[:2]]


def test_helm_values_are_read_by_what_they_fill() -> None:
    values = {
        "global": {"gpuSharing": True, "registry": "r", "nodeSelector": {"a": "b"}},
        "operator": {"replicaCount": 2, "qps": 50},
        "scheduler": {"placementStrategy": "spread"},
        "nodescaleadjuster": {"enabled": True},
        "defaultQueue": {"createDefaultQueue": True},
    }
    found = of(values)
    assert found.values["scheduler"] == {"nodeSelector": {"a": "b"}, "replicas": 2}
    assert "--gpu-sharing-enabled" in found.command(ADMISSION)
    left = {line.partition(":")[0] for line in found.left}
    assert left == {
        "global.registry",
        "operator.qps",
        "nodescaleadjuster.enabled",
        "defaultQueue.createDefaultQueue",
    }
    assert any("placementStrategy" in line for line in found.differs)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("global", "admission", "args", "metadata", "spec", "x")), inner)
    ),
    max_leaves=10,
)


@given(
    st.sampled_from(("Config", "SchedulingShard", "Pod", None)),
    st.dictionaries(st.text(max_size=3), JSON),
    JSON,
)
def test_nonsense_is_named_and_never_raised(kind: Any, document: dict[str, Any], spec: Any) -> None:
    found = of({**document, **({"kind": kind} if kind else {}), "spec": spec})
    assert told(found)
    assert found.to_json()["schema"] == "migration/1"


def test_the_command_reads_files_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kai.yaml"
    file.write_text(yaml.safe_dump_all([config(admission={"gpuSharing": True}), shard(), {"kind": "Pod"}]))
    done = run("migrate", file)
    said = "kai-cp: not understood: kai.yaml: a Pod is neither Config, SchedulingShard nor Helm values\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert "--gpu-sharing-enabled" in done.stdout
    assert "# Not understood" in done.stdout
    assert run("migrate", file, "-o", "json").stdout.startswith("{")
    assert run("migrate", file, "-o", "yaml").stdout.startswith("schema: migration/1\n")
    pool = tmp_path / "values.yaml"
    pool.write_text("global: {nodeSelector: {pool: infra}}\n")
    assert run("migrate", pool).returncode == 0
    for form in ("text", "yaml"):
        assert "nodeSelector:\n" in (told := run("migrate", pool, "-o", form).stdout)
        assert told.count("pool: infra") == 2
    absent = run("migrate", tmp_path / "absent.yaml")
    said = f"kai-cp: {tmp_path / 'absent.yaml'}: cannot be read: No such file or directory\n"
    assert (absent.returncode, absent.stderr) == (1, said)


def test_a_snapshot_or_an_answer_is_not_taken_for_helm_values() -> None:
    said = "this is neither Config, SchedulingShard nor Helm values"
    for document in ({"rawObjects": {"pods": [{"kind": "Pod"}]}}, {"schema": "decisions/1", "stages": [{}]}):
        found = of(document)
        assert ([one.partition(": ")[2] for one in found.unread], found.left) == ([said], [])
    assert of({"global": {"x": 1}, "y": 1}).left == ["global.x: has no counterpart", "y: has no counterpart"]
    assert not of({}).unread


@pytest.mark.parametrize("text", ["a: [", "- 1", ""])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    done = run("migrate", file)
    assert done.returncode == 1
    assert "bad.yaml" in done.stderr
