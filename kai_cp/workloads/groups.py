"""The values that a workload gives its PodGroup object (10.2, 10.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import EMPTY
from kai_cp.workloads.items import Answers, Reference

SPEC_KEYS: Final = (
    "queue",
    "priorityClassName",
    "preemptibility",
    "preemptionDelay",
    "stalenessGracePeriod",
    "topologyConstraint",
    "minMember",
    "minSubGroup",
    "subGroups",
)
"""What the grouper writes of a spec; every other field belongs to its other writers."""


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """Where pods must or should be together: a Topology's name and its levels; "" is absent."""

    name: str = ""
    required: str = ""
    preferred: str = ""

    def json(self) -> dict[str, str]:
        """The ``topologyConstraint``; empty if there is none."""
        values = {
            "topology": self.name,
            "requiredTopologyLevel": self.required,
            "preferredTopologyLevel": self.preferred,
        }
        return {key: value for key, value in values.items() if value}


NOWHERE: Final = GroupTopology()


@dataclass(frozen=True, slots=True)
class GroupSubgroup:
    """A subgroup of the gang, of pods (``min_member``) or of further subgroups (``min_subgroup``)."""

    name: str
    min_member: int | None = None
    min_subgroup: int | None = None
    parent: str = ""
    topology: GroupTopology = NOWHERE

    def json(self) -> dict[str, Any]:
        """The entry of ``subGroups``."""
        found: dict[str, Any] = {"name": self.name}
        if self.min_subgroup is not None:
            found["minSubGroup"] = self.min_subgroup
        elif self.min_member is not None:
            found["minMember"] = self.min_member
        if self.parent:
            found["parent"] = self.parent
        if self.topology.json():
            found["topologyConstraint"] = self.topology.json()
        return found


class Subgroups(tuple[GroupSubgroup, ...]):
    """The subgroups of a gang. Its pods share one, so what all need of it is made once."""

    _stored: Any = None
    """The ``subGroups`` that said the same when they were compared last."""

    @cached_property
    def answers(self) -> Answers:
        """What was made of it."""
        return Answers()

    @cached_property
    def parents(self) -> Mapping[str, str]:
        """By the name of a subgroup that of its parent; "" is none."""
        return {subgroup.name: subgroup.parent for subgroup in self}

    def json(self, stored: Any = None) -> Any:
        """The ``subGroups``: ``stored`` itself, if it says the same."""
        if stored is None or stored is not self._stored:
            made = [subgroup.json() for subgroup in self]
            if made != stored:
                return made
            self._stored = stored
        return stored


@dataclass(frozen=True, slots=True)
class Group:
    """One pod group. Durations have Go's format (``1m30s``); "" is absent."""

    namespace: str
    name: str
    owner: Reference
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    queue: str
    priority_class: str
    preemptibility: str = ""
    preemption_delay: str = ""
    staleness_grace: str = ""
    topology: GroupTopology = NOWHERE
    min_member: int = 1
    min_subgroup: int | None = None
    subgroups: Subgroups = Subgroups()
    follows_queue: bool = False
    """Whether ``queue`` is written again when the workload's changes."""

    def spec(self, stored: Json = EMPTY) -> dict[str, Any]:
        """The ``spec`` of a PodGroup, without absent fields; it shares subgroups that ``stored`` has, too."""
        values: dict[str, Any] = {
            "queue": self.queue,
            "priorityClassName": self.priority_class,
            "preemptibility": self.preemptibility,
            "preemptionDelay": self.preemption_delay,
            "stalenessGracePeriod": self.staleness_grace,
            "topologyConstraint": self.topology.json(),
            "subGroups": self.subgroups.json(stored.get("subGroups")),
        }
        found = {key: value for key, value in values.items() if value}
        if self.min_subgroup is not None:
            found["minSubGroup"] = self.min_subgroup
        else:
            found["minMember"] = self.min_member
        return found


@dataclass(frozen=True, slots=True)
class Grouped:
    """The group and the subgroup of one pod; "" is none."""

    group: Group
    subgroup: str = ""
