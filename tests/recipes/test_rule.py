"""The recipe *Add a rule* of CONTRIBUTING, carried out: a static and a stateful one, with their checks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kai_cp_models import check
from kai_cp_models.arrays import Mask
from kai_cp_models.check import PlannedCluster, nodes, violations
from kai_cp_models.check.audit import SUBJECTS
from kai_cp_models.explain.families import ORDER
from kai_cp_models.rules import stateful
from kai_cp_models.rules.stateful.protocol import LeavingState, RuleState
from kai_cp_models.rules.static import STATIC_RULES, table
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Node, Pod, SetAside, Snapshot
from tests.support.plans import bound, solved
from tests.support.worlds import cluster, node, pod


class Repair:
    """A node that is labelled as under repair takes no pod."""

    NAME = "repair"
    FAMILY = "node-condition"

    def mask(self, table: NodeTable, pod: Pod) -> Mask | None:
        """Nodes that are not under repair."""
        return cast(Mask, ~table.label("repair").among(("yes",)))

    def broken(self, snapshot: Snapshot, pod: Pod, node: Node) -> str | None:
        """The same of one node."""
        return "under repair" if node.labels.get("repair") == "yes" else None


def test_a_static_rule_is_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod goes to the fuller node, which is under repair; with the rule it goes to the other one."""
    machines = [node("n1", labels={"repair": "yes"}), node("n2")]
    snapshot = cluster([pod("a-0", "n1"), pod("b-0")], nodes=machines, plugins=frozenset({"nodeplacement"}))
    wrong = solved(snapshot)
    assert bound(wrong) == {"b-0": "n1"}
    rules = (*STATIC_RULES, Repair())
    for module, name in ((table, "STATIC_RULES"), (nodes, "_RULES")):
        monkeypatch.setattr(module, name, rules)
    assert bound(solved(snapshot)) == {"b-0": "n2"}
    assert violations(snapshot, wrong) == ["nodes: pod ns/b-0 on node n1: under repair"]


class SoloState(LeavingState):
    """Pods with the label ``solo`` by node: no two of them share one."""

    name = "solo"
    family = "affinity"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._nodes = len(snapshot.nodes)
        held = (pod for pod in snapshot.pods if self.concerns(pod) and pod.node is not None)
        self._taken = {snapshot.node_index[pod.node]: 1 for pod in held if pod.node is not None}

    def detach(self) -> None:
        super().detach()
        self._taken = dict(self._taken)

    def concerns(self, pod: Pod) -> bool:
        return "solo" in pod.labels

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        return np.array([not self._taken.get(n) for n in range(self._nodes)])

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> Mapping[str, Any]:
        self._taken[node] = self._taken.get(node, 0) + 1
        return {}

    def remove(self, pod: Pod, node: int) -> None:
        self._taken[node] -= 1


class Solo:
    """The module of the rule."""

    NAME = "solo"

    def active(self, snapshot: Snapshot, options: OptionalRules) -> bool:
        return any("solo" in pod.labels for pod in snapshot.pods)

    def open(self, snapshot: Snapshot) -> RuleState:
        return SoloState(snapshot)

    def set_aside(self, snapshot: Snapshot) -> Iterator[SetAside]:
        yield from ()


def broken(world: PlannedCluster) -> Iterator[str]:
    """The rule once more, from its sentence: the module ``check/solo.py``."""
    nodes = [one.node for key, one in world.placed.items() if "solo" in world.pod(key).labels]
    yield from (f"solo: node {node} has two" for node in sorted(set(nodes)) if nodes.count(node) > 1)


def test_a_stateful_rule_is_a_module_a_line_and_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both pods go to the fuller node; with the rule each has a node of its own."""
    alone = {"labels": {"solo": "yes"}}
    waiting = [pod("a-0", **alone), pod("b-0", **alone)]
    snapshot = cluster(
        [pod("r-0", "n1"), *waiting],
        nodes=[node("n1"), node("n2")],
        plugins=frozenset({"nodeplacement"}),
    )
    wrong = solved(snapshot)
    assert bound(wrong) == {"a-0": "n1", "b-0": "n1"}
    monkeypatch.setattr(stateful, "RULES", (*stateful.RULES, Solo()))
    monkeypatch.setitem(SUBJECTS, "solo", broken)
    assert set(bound(solved(snapshot)).values()) == {"n1", "n2"}
    assert violations(snapshot, wrong) == ["solo: node n1 has two"]


def test_every_family_of_a_rule_has_its_place_in_the_order() -> None:
    states = [kind for kind in LeavingState.__subclasses__() if kind.__module__.startswith("kai_cp_models")]
    named = {rule.FAMILY for rule in STATIC_RULES} | {kind.family for kind in states}
    assert len(states) >= 8
    assert named - {None} <= set(ORDER)


def test_a_subject_of_the_audit_is_a_module_with_its_function() -> None:
    folder = Path(check.__file__).parent
    written = {path.stem for path in folder.glob("*.py") if "def broken(" in path.read_text("utf-8")}
    assert SUBJECTS.keys() == written
    assert next(iter(SUBJECTS)) == "protocol"
