"""Topology objects and the constraints that name their levels (1.4, 8.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kai_cp.json_types import Json
from kai_cp.object_names import LONGEST_KEY
from kai_cp.reader.fields import Malformed, object_at, objects_at, shown, text_at
from kai_cp.reader.notes import Identity, Notes, title
from kai_cp_models.pods import GPU
from kai_cp_models.snapshot import Node, Topology, TopologyConstraint

HOSTNAME: Final = "kubernetes.io/hostname"
_SHOWN: Final = 3
"""Nodes that a message names."""


@dataclass(frozen=True, slots=True)
class TopologyDraft:
    """A topology with the aliases of its levels."""

    topology: Topology
    aliases: Mapping[str, str]

    def level(self, name: str) -> str | None:
        """The node label of a level, which is named by that label or by an alias."""
        return name if name in self.topology.levels else self.aliases.get(name)


def read_topologies(objects: Mapping[Identity, Json], notes: Notes) -> dict[str, TopologyDraft]:
    """Topologies by name."""
    found: dict[str, TopologyDraft] = {}
    for identity, obj in objects.items():
        try:
            found[identity[1]] = _fabric(obj, identity[1])
        except Malformed as problem:
            notes.aside(title("Topology", identity), problem)
    return found


def _fabric(obj: Json, name: str) -> TopologyDraft:
    labels: list[str] = []
    aliases: dict[str, str] = {}
    for i, level in enumerate(objects_at(object_at(obj, "spec"), "levels", "spec")):
        where = f"spec.levels[{i}]"
        label = text_at(level, "nodeLabel", where)
        if not label or label in labels:
            raise Malformed(f"{where}.nodeLabel", f"{shown(label)} is empty or not unique")
        labels.append(label)
        alias = text_at(level, "alias", where)
        if alias:
            aliases[alias] = label
    if not labels:
        raise Malformed("spec.levels", "there are none")
    return TopologyDraft(Topology(name, tuple(labels), tuple(sorted(aliases.items()))), aliases)


def report_outside(fabrics: Mapping[str, TopologyDraft], nodes: Sequence[Node], notes: Notes) -> None:
    """Report nodes that lack a level's label and so belong to no domain of that topology (8.1).

    A node without GPUs counts only if it has another label of the topology besides the host name.
    """
    for name, fabric in fabrics.items():
        levels = [label for label in fabric.topology.levels if label != HOSTNAME]
        every = frozenset(levels)
        missing = {
            node.name: lacked
            for node in nodes
            if not every <= node.labels.keys()
            and (lacked := [label for label in levels if label not in node.labels])
            and (len(lacked) < len(levels) or node.gpu_count or node.allocatable[GPU] > 0)
        }
        if missing:
            some = [f"{node} ({', '.join(lacked)})" for node, lacked in sorted(missing.items())[:_SHOWN]]
            if len(missing) > _SHOWN:
                some.append(f"{len(missing) - _SHOWN} more")
            reason = f"{len(missing)} of {len(nodes)} nodes lack the label of a level and are in none of its "
            notes.aside(title("Topology", ("", name)), f"{reason}domains: {', '.join(some)}")


def read_constraint(
    holder: Json, where: str, fabrics: Mapping[str, TopologyDraft]
) -> TopologyConstraint | None:
    """The ``topologyConstraint`` of a pod group or subgroup; None when it names no topology."""
    if holder.get("topologyConstraint") is None:
        return None
    raw = object_at(holder, "topologyConstraint", where)
    inner = f"{where}.topologyConstraint"
    # A text that is too long to name anything names nothing when it is cut either, and then takes no memory.
    name, required, preferred = (
        text_at(raw, key, inner)[: LONGEST_KEY + 1]
        for key in ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
    )
    if not name:
        return None
    fabric = fabrics.get(name)
    if fabric is None:
        return TopologyConstraint(name, required, preferred, f"topology {shown(name)} does not exist")
    if not required and not preferred:
        return TopologyConstraint(name, error=f"no level of topology {shown(name)} is named")
    for level in filter(None, (required, preferred)):
        if fabric.level(level) is None:
            problem = f"topology {shown(name)} has no level {shown(level)}"
            return TopologyConstraint(name, required, preferred, problem)
    return TopologyConstraint(name, fabric.level(required) or "", fabric.level(preferred) or "")
