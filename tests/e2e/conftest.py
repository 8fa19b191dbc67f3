"""One control plane for all tests of this folder; every test has its own nodes, queues and namespaces."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_cp.kube.demo.controlplane import ControlPlane
from tests.e2e.world import World, prepare
from tests.kubetest.build import build, find

SKIPPED = (
    "end-to-end test skipped: there is no control plane binary; build it with "
    "`python -m tests.kubetest.build`, or set KAI_CP_E2E=build"
)
USERS = ("scheduler", "scheduler2", "binder", "controllers", "admission", "reader", "nobody")
numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs the API server, and only one may use it at a time."""
    for item in items:
        if item.path.parent.name == "e2e":
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.xdist_group("e2e"))


@pytest.fixture(scope="session")
def binary() -> Path:
    """The control plane binary; where it is missing, tests that need it are skipped and say so."""
    found = find()
    if found is None:
        if os.environ.get("KAI_CP_E2E") != "build":
            pytest.skip(SKIPPED)
        found = build()
    return found


@pytest.fixture(scope="session")
def control_plane(binary: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binary, users={user: [] for user in USERS}) as plane:
        prepare(plane)
        yield plane


@pytest.fixture
def world(control_plane: ControlPlane) -> Iterator[World]:
    """A cluster of its own: a node pool and a namespace, all of which are deleted afterwards.

    After every test no node is over its capacity and no gang is torn.
    """
    made = World(control_plane, f"t{next(numbers)}")
    try:
        yield made
        made.until(lambda: not made.audit(), "nothing is left half done")
    finally:
        made.close()
