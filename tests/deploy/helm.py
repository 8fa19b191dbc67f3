"""Helm on the chart, offline."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from kai_cp.kube.api.access import ControllerName
from tests.kubetest.build import find_helm

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "kai-cp"
Object = dict[str, Any]
INSTEAD_OF_KAI: Object = {
    "mode": "enforce",
    "reservation": {"createServiceAccount": True},
    "controllers": {
        "enabled": list(get_args(ControllerName)),
        "defaultPriorities": {"configMap": "by-kind"},
    },
    "admission": {"enabled": True},
    "rbac": {"crdInstaller": True},
}
"""Everything that replaces a part of KAI, in KAI's namespaces, which exist already."""


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Helm; skip the test where Helm is missing."""
    binary = find_helm()
    if binary is None:
        pytest.skip("there is no Helm; build it with `make control-plane`")
    return subprocess.run([str(binary), *arguments], input=stdin, capture_output=True, text=True, check=False)


def template(values: Object | None = None, release: str = "one", namespace: str = "kai-cp") -> str:
    """The manifest of the chart with these values."""
    done = helm("template", release, str(CHART), "-n", namespace, "-f", "-", stdin=json.dumps(values or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(values: Object) -> str:
    """Helm's message about values that it has to refuse."""
    done = helm("template", "one", str(CHART), "-f", "-", stdin=json.dumps(values))
    assert done.returncode != 0, done.stdout[:2000]
    return done.stderr


def objects(manifest: str) -> list[Object]:
    """The objects of a manifest."""
    return [item for item in yaml.safe_load_all(manifest) if item]


def instead_of_kai() -> list[Object]:
    """The objects of a release ``kai-cp`` with everything, in KAI's own namespace."""
    return objects(template(INSTEAD_OF_KAI, "kai-cp", "kai-scheduler"))
