"""The chart's RBAC equals what the code declares and uses, in both directions."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import yaml

from kai_cp.kube.api.access import ACCESS, OWNERS, WITH_OPTIONS, Grant, permits
from kai_cp.kube.controllers.base import Factory
from kai_cp.kube.controllers.catalogue import CONTROLLERS
from kai_cp.kube.install import definitions
from kai_cp.kube.scheduler.process import SchedulerSetup

ROOT = Path(__file__).parents[4]
RIGHTS = ROOT / "deploy/chart/kai-cp/files/rights.yaml"


def granted() -> dict[str, set[Grant]]:
    """What the chart's file grants to each account, in the mode with the most rights."""
    found: dict[str, set[Grant]] = {}
    for account, modes in yaml.safe_load(RIGHTS.read_text()).items():
        grants = found.setdefault(account, set())
        for scope, rules in modes.get("enforce", modes.get("any")).items():
            for rule in rules:
                assert "*" not in str(rule)
                grants |= {
                    Grant(verb, group, resource, "" if scope == "cluster" else scope, name)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                    for name in rule.get("resourceNames", [""])
                }
    return found


def test_the_chart_grants_what_is_declared_and_nothing_else() -> None:
    assert granted() == {process: set(grants) for process, grants in ACCESS.items()}


def test_no_account_reads_secrets_but_the_one_that_admission_shows() -> None:
    secrets = {grant for grants in granted().values() for grant in grants if "secret" in grant.resource}
    assert {(grant.scope, grant.name) for grant in secrets} == {("system", "kai-cp-admission-tls")}
    assert secrets <= granted()["admission"]


def test_binder_and_controllers_take_no_lease_but_their_own() -> None:
    """Who gets into one of them cannot make another process give up."""
    for account, lease in (("binder", "kai-cp-binder"), ("controllers", "kai-cp-controllers")):
        leases = {(grant.verb, grant.name) for grant in granted()[account] if grant.resource == "leases"}
        assert leases == {("create", ""), ("get", lease), ("update", lease)}


def test_a_scoped_grant_needs_a_namespace() -> None:
    from kai_cp.kube.api import resources as r

    assert permits("scheduler", "update", r.LEASES, "", "kai-scheduler")
    assert not permits("scheduler", "update", r.LEASES, "", "")
    assert not permits("scheduler", "create", r.PODS, "binding", "ns")


CALLS = {
    "get": "get",
    "list_pages": "list",
    "watch": "watch",
    "create": "create",
    "update": "update",
    "patch": "patch",
    "delete": "delete",
}
BESIDE = {"podgrouper": ("controllers/owners",)}
"""Modules that act for a controller besides its own."""


def module_of(factory: Factory) -> str:
    """The module that a controller is in, below ``kai_cp/kube``."""
    return factory.__module__.removeprefix("kai_cp.kube.").replace(".", "/")


MODULES: dict[str, tuple[str, ...]] = {
    "scheduler": (
        "scheduler/api_cluster",
        "scheduler/group_annotations",
        "scheduler/reports",
        "scheduler/process",
        "api/recorder",
        "api/lease",
    ),
    "binder": (
        "binder/binder",
        "binder/reservation",
        "binder/sharing",
        "binder/volumes",
        "binder/claims",
        "binder/extended_claims",
        "api/recorder",
        "api/lease",
    ),
    "gpu-reservation": ("binder/gpu_reservation",),
    "admin": ("install",),
    "admission": ("admission/keeper",),
    "controllers": ("api/recorder", "api/lease"),
} | {name: (module_of(factory), *BESIDE.get(name, ())) for name, factory in CONTROLLERS.items()}
IMPLIED = {
    ("update", "resourceclaims/binding"): ("update", "resourceclaims/status"),
}
"""Grants that the server requires in addition to another one: writing an allocation needs the first as well.
"""
OWNER_READS = {("get", plural) for plural in ("pods", *(kind.plural for kind in OWNERS))}
"""Reads of any kind that may own a pod: no constant in the source names it."""


def calls(module: str) -> set[tuple[str, str]]:
    """(verb, resource constant with subresource) of every call on a transport in a module."""
    found = set()
    tree = ast.parse((ROOT / f"kai_cp/kube/{module}.py").read_text())
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        resource = call.args[0] if call.args else None
        if isinstance(resource, ast.Call) and isinstance(resource.func, ast.Attribute):
            resource = resource.func.value  # r.KIND.at(version)
        if call.func.attr not in CALLS or not isinstance(resource, ast.Attribute):
            continue
        if not (isinstance(resource.value, ast.Name) and resource.value.id in ("resources", "r")):
            continue
        sub = [
            k.value.value
            for k in call.keywords
            if k.arg == "subresource" and isinstance(k.value, ast.Constant)
        ]
        found.add((CALLS[call.func.attr], "/".join([resource.attr, *map(str, sub)])))
    return found


def test_every_declared_write_is_used_and_every_used_one_is_declared() -> None:
    """Reflectors read; writes and single reads are found in the source."""
    from kai_cp.kube.api import resources as r

    for process, modules in MODULES.items():
        used = set()
        for module in modules:
            for verb, name in calls(module):
                constant, _, sub = name.partition("/")
                plural = getattr(r, constant).plural
                used.add((verb, f"{plural}/{sub}" if sub else plural))
        granted = {
            (grant.verb, grant.resource)
            for name in (process, WITH_OPTIONS.get(process, process))  # type: ignore[call-overload]
            for grant in ACCESS[name]
        }
        lists = {call for call in used if call[0] == "list"}
        assert lists <= granted, process
        used -= lists
        declared = {call for call in granted if call[0] not in ("list", "watch")}
        used |= OWNER_READS if process == "podgrouper" else set()
        used |= {extra for extra, base in IMPLIED.items() if base in used}
        assert used == declared, process


def test_definitions_are_complete() -> None:
    names = {definition["metadata"]["name"] for _, definition in definitions()}
    assert names == {
        "queues.scheduling.run.ai",
        "podgroups.scheduling.run.ai",
        "bindrequests.scheduling.run.ai",
        "topologies.kai.scheduler",
        "schedulingshards.kai.scheduler",
        "configs.kai.scheduler",
    }
    for _, definition in definitions():
        version = definition["spec"]["versions"][0]
        assert version["schema"]["openAPIV3Schema"]["type"] == "object"
        plural = definition["spec"]["names"]["plural"]
        assert definition["metadata"]["name"] == f"{plural}.{definition['spec']['group']}"


def test_alerts_ask_for_metrics_that_exist() -> None:
    from prometheus_client import CollectorRegistry

    from kai_cp.kube.telemetry.leadership import show_leadership
    from kai_cp.kube.telemetry.metrics import SchedulerMetrics

    registry = CollectorRegistry()
    show_leadership(registry, "kai-scheduler", None)
    SchedulerMetrics(registry)
    known = set()
    for family in registry.collect():
        known |= {family.name, f"{family.name}_total"}
    groups = yaml.safe_load((ROOT / "deploy/chart/kai-cp/files/alerts.yaml").read_text())["groups"]
    for alert in groups[0]["rules"]:
        assert set(re.findall(r"kai_cp_\w+", alert["expr"])) <= known, alert["alert"]


def test_data_is_served_on_loopback() -> None:
    assert SchedulerSetup().data.startswith("127.0.0.1:")


def test_the_table_of_end_to_end_tests_names_real_ones() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "tests/e2e/README.md").read_text()))
    defined = {
        name
        for path in (*(ROOT / "tests/e2e").glob("*.py"), *(ROOT / "tests/kai_cp/kube").rglob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 40
    assert named <= defined
    end_to_end = {
        name
        for path in (ROOT / "tests/e2e").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert end_to_end <= named, "the table is whole"


def test_the_image_is_made_of_what_the_package_is() -> None:
    """There may be no daemon to build it with. At least every source exists, and every package is in it."""
    lines = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    sources = {source for entry in copied for source in entry}
    assert all((ROOT / source).exists() for source in sources)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = build["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= sources
    needed = {build["project"]["readme"], *build["project"]["license-files"], "pyproject.toml"}
    assert needed <= sources
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert any(line.startswith("USER") and "10000" in line for line in last), "not root"


def test_definitions_hold_no_stray_keys() -> None:
    """``{description: One, two}`` has one key too many, and server-side apply refuses it."""

    def stray(value: object, path: str) -> list[str]:
        if isinstance(value, dict):
            own = [f"{path}/{key}" for key, entry in value.items() if entry is None]
            return own + [found for key, entry in value.items() for found in stray(entry, f"{path}/{key}")]
        if isinstance(value, list):
            return [found for i, entry in enumerate(value) for found in stray(entry, f"{path}/{i}")]
        return []

    assert [path for _, definition in definitions() for path in stray(definition, "")] == []
