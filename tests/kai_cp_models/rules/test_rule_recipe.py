"""The recipe *Add a rule* of CONTRIBUTING, carried out: one static rule, for the engine and the checker."""

from typing import Any, cast

import pytest

from kai_cp_models.arrays import Mask
from kai_cp_models.check import nodes, violations
from kai_cp_models.explain.families import STATIC_FAMILY
from kai_cp_models.rules.static import STATIC_RULES, table
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.snapshot import Node, Pod, Snapshot
from tests.support.plans import bound, solved
from tests.support.worlds import cluster, node, pod


class Repair:
    """A node that is labelled as under repair takes no pod."""

    NAME = "repair"

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
    monkeypatch.setitem(cast(Any, STATIC_FAMILY), "repair", "node-condition")
    assert bound(solved(snapshot)) == {"b-0": "n2"}
    assert violations(snapshot, wrong) == ["nodes: pod ns/b-0 on node n1: under repair"]
