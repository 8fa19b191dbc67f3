"""Kinds described by a Karta object of the cluster, in jq expressions (10.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, object_at, objects_at, shown, text_at, texts_at
from kai_cp.workloads.groups import Group, Grouped, GroupSubgroup, GroupTopology, Subgroups
from kai_cp.workloads.items import INT32, GroupingError, Item
from kai_cp.workloads.reads import Reads
from kai_cp.workloads.workload import Workload, inherited

GROUP_LABEL: Final = "run.ai/karta-group"
VERSION_LABEL: Final = "run.ai/karta-version"
KIND_LABEL: Final = "run.ai/karta-kind"
_ENDLESS: Final = re.compile(
    r"\b(def|while|until|repeat|recurse|range|paths|walk|del|inputs?|debug|env|input_filename)\b"
    r"|\.\.|(?<![=!<>])=(?!=)|\$ENV|\$__"
)
"""What may have no end, reads the process, or changes the object."""
_NAMES: Final = re.compile(r'"(?:[^"\\]|\\[^(])*"|\.[A-Za-z_]\w*')
"""Texts and fields, whose names mean nothing."""
_LONGEST: Final = 1000
_PODS: Final = {"podTemplateSpecPath", "podSpecPath", "fragmentedPodSpecDefinition"}
_SCALES: Final = ("minReplicasPath", "replicasPath", "maxReplicasPath")


class BadKarta(ValueError):
    """An unusable Karta; the text names the field."""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a workload's structure.

    ``type_path`` and ``instance_path`` are jq expressions on the pod, the other paths on the root object.
    """

    name: str
    parent: str = ""
    leaf: bool = False
    scale: Mapping[str, str] | None = None
    instances: str = ""
    type_path: str = ""
    type_value: str | None = None
    instance_path: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A component whose pods form groups, split by the values of ``group_by`` if all ``filters`` hold."""

    component: str
    group_by: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Structure:
    """A usable Karta. ``group`` names a workload's only group; None if ``members`` divide its pods."""

    components: Mapping[str, Component]
    root: str
    kind: tuple[str, str, str]
    group: str | None = None
    parts: tuple[tuple[str, GroupTopology | None], ...] = ()
    topology: GroupTopology | None = None
    members: tuple[Member, ...] = ()

    def below(self, name: str) -> list[Component]:
        """The direct children of a component."""
        return [component for component in self.components.values() if component.parent == name]

    def subtree(self, name: str) -> list[Component]:
        """A component and all its descendants."""
        found = [self.components[name]]
        for child in self.below(name):
            found += self.subtree(child.name)
        return found


def by_karta(pod: Item, root: Item, reads: Reads, workload: Workload) -> Grouped | None:
    """The group that a Karta gives the pod; None if no single usable Karta describes the kind.

    Raises ``GroupingError`` if a path of the Karta cannot be evaluated.
    """
    reference = root.reference
    reference_kind = (reference.group, reference.version, reference.kind)
    usable = []
    for item in reads.kartas(reference.group, reference.version, reference.kind):
        try:
            structure = structure_of(item.raw)
        except BadKarta:
            continue
        if structure is not None and structure.kind == reference_kind and not item.deleted:
            usable.append((item, structure))
    if len(usable) != 1:
        return None
    karta, structure = usable[0]
    group = inherited(replace(workload, owner=root))
    reader = _Reader(karta, structure, root, pod)
    try:
        return reader.divided(group) if structure.group is None else reader.whole(group, structure.group)
    except BadKarta as problem:
        raise GroupingError(f"Karta {karta.name}", "", f"{problem} (for {root.what})") from None


class _Reader:
    """Evaluates one Karta for one workload and pod."""

    def __init__(self, karta: Item, structure: Structure, root: Item, pod: Item) -> None:
        self._karta = karta
        self._structure = structure
        self._root = root
        self._pod = pod

    def whole(self, group: Group, name: str) -> Grouped:
        """One group for the workload, with a subgroup for each listed component."""
        structure = self._structure
        group = replace(group, name=f"pg-{self._root.uid}-{name}")
        if structure.topology is not None:
            group = replace(group, topology=_complete(name, structure.topology))
        if not structure.parts:
            return Grouped(replace(group, min_member=self._scale(structure.root)))
        subgroups, inside = [], ""
        for part, topology in structure.parts:
            if part not in structure.components:
                raise BadKarta(f"{name}: {shown(part)} is not a component")
            least = self._scale(part)
            if least <= 0:
                raise BadKarta(f"component {part}: its scale is 0")
            where = GroupTopology() if topology is None else _complete(part, topology)
            subgroups.append(GroupSubgroup(part, least, topology=where))
            if not inside and any(self._selects(component) for component in structure.subtree(part)):
                inside = part
        return Grouped(replace(group, min_subgroup=len(subgroups), subgroups=Subgroups(subgroups)), inside)

    def divided(self, group: Group) -> Grouped:
        """The group of the member that the pod belongs to."""
        structure = self._structure
        leaves = [component for component in structure.components.values() if component.leaf]
        leaf = leaves[0] if len(leaves) == 1 else next(filter(self._selects, leaves), None)
        if leaf is None:
            raise BadKarta("no component with pods selects the pod")
        line = [leaf.name]
        while structure.components[line[-1]].parent:
            line.append(structure.components[line[-1]].parent)
        for name in line:
            for member in structure.members:
                if member.component == name and all(self._one(text) is True for text in member.filters):
                    instance = self._own_instance(leaf) if name == leaf.name else None
                    keys = [_spelled(self._one(text)) for text in member.group_by]
                    full = "-".join([f"pg-{self._root.uid}", *keys])
                    return Grouped(replace(group, name=full, min_member=self._scale(name, instance)))
        raise BadKarta("no member of a pod group takes the pod")

    def _scale(self, name: str, instance: str | None = None) -> int:
        """The number of pods of a component, or of one instance of it, and of its descendants."""
        component = self._structure.components[name]
        below = self._structure.below(name)
        if all(one.scale is None for one in self._structure.components.values()):
            if component.leaf:
                return 1 if instance is not None else len(self._instances(component))
            return sum(self._scale(child.name) for child in below)
        scales = self._scales(component)
        if instance is not None and instance not in scales:
            raise BadKarta(f"component {name}: its instances have no scale")
        own = sum(scales.values()) if instance is None else scales[instance]
        inner = sum(self._scale(child.name) for child in below)
        return own * inner if own and inner else own or inner

    def _scales(self, component: Component) -> dict[str, int]:
        """The scale of each instance of a component: its least replicas, or else its replicas."""
        if component.scale is None:
            return {}
        numbers = {key: self._numbers(text) for key, text in component.scale.items()}
        count = max(map(len, numbers.values()), default=0)
        instances = self._instances(component)
        if count != len(instances):
            raise BadKarta(f"component {component.name}: {count} scales for {len(instances)} instances")
        found: dict[str, int] = {}
        for i, name in enumerate(instances):
            said = [numbers[key][i : i + 1] for key in ("minReplicasPath", "replicasPath") if key in numbers]
            found[name] = next((value for values in said for value in values if value > 0), 0)
        return found

    def _own_instance(self, leaf: Component) -> str | None:
        """The instance of its component that the pod belongs to; None if the component has none."""
        instances = self._instances(leaf) if leaf.instances else []
        if not instances:
            return None
        name = _spelled(self._one(leaf.instance_path))
        if name not in instances:
            raise BadKarta(f"component {leaf.name}: {shown(name)} is not an instance of it")
        return name

    def _instances(self, component: Component) -> list[str]:
        """The names of a component's instances; one without a name if it does not tell them apart."""
        if not component.instances:
            return [""]
        found = self._values(self._root.raw, component.instances)
        for value in found:
            if not isinstance(value, str) or not value:
                raise BadKarta(f"{component.instances}: {shown(value)} is not a name")
        return found

    def _numbers(self, text: str) -> list[int]:
        found = []
        for value in self._values(self._root.raw, text):
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            if whole is not None and (type(whole) is not int or whole not in INT32):
                raise BadKarta(f"{text}: {shown(value)} is not a whole number of 32 bits")
            found.append(whole or 0)
        return found

    def _selects(self, component: Component) -> bool:
        if not component.type_path:
            return False
        found = self._values(self._pod.raw, component.type_path)
        wanted = component.type_value
        return any(value is not None if wanted is None else value == wanted for value in found)

    def _one(self, text: str) -> Any:
        """The single value of a path of the pod."""
        found = self._values(self._pod.raw, text)
        if len(found) != 1 or found[0] in (None, ""):
            raise BadKarta(f"{text}: names {len(found)} values in the pod; one that is not empty is needed")
        return found[0]

    def _values(self, raw: Json, text: str) -> list[Any]:
        try:
            values: list[Any] = program(text).input_value(raw).all()
        except ValueError as problem:
            raise BadKarta(f"{text}: {str(problem).splitlines()[0]}") from None
        return values


@lru_cache(maxsize=4096)
def program(text: str) -> Any:
    """A compiled jq expression. Raises ``ValueError`` if it is invalid or its run time has no bound."""
    import jq

    exact = "\\(" in text or "#" in text  # A program within a text, or a comment, is not told from a text.
    found = _ENDLESS.search(text if exact else _NAMES.sub(" ", text))
    if found:
        raise ValueError(f"{found[0]} is not allowed in a path")
    if len(text) > _LONGEST:
        raise ValueError("longer than 1000 characters")
    return jq.compile(text)


def structure_of(raw: Json) -> Structure | None:
    """The gang structure of a Karta; None if it has none. Raises ``BadKarta`` if it is invalid."""
    try:
        spec = object_at(raw, "spec")
        gang = object_at(object_at(spec, "optimizationInstructions", "spec"), "gangScheduling", "spec")
        if not gang:
            return None
        definition = object_at(spec, "structureDefinition", "spec")
        components = _components(definition)
        root = next(iter(components))
        kind = _kind(object_at(definition, "rootComponent", "structureDefinition"))
        groups = objects_at(gang, "podGroups", "gangScheduling")
        members = tuple(
            _member(entry, f"gangScheduling.podGroups[{i}].members[{j}]", components)
            for i, group in enumerate(groups)
            for j, entry in enumerate(objects_at(group, "members", f"gangScheduling.podGroups[{i}]"))
        )
        found = Structure(components, root, kind, members=members)
        if gang.get("podGroup") is None:
            return found if groups else None
        return _one_group(found, object_at(gang, "podGroup", "gangScheduling"))
    except Malformed as problem:
        raise BadKarta(str(problem)) from None


def _kind(root: Json) -> tuple[str, str, str]:
    """Group, version and kind of the workload."""
    kind = object_at(root, "kind", "rootComponent")
    found = (text_at(kind, "group"), text_at(kind, "version"), text_at(kind, "kind"))
    if not all(found):
        raise Malformed("rootComponent.kind", "group, version and kind are needed")
    return found


def _components(definition: Json) -> dict[str, Component]:
    root = object_at(definition, "rootComponent", "structureDefinition")
    if root.get("statusDefinition") is None:
        raise Malformed("rootComponent.statusDefinition", "is missing")
    if text_at(root, "ownerRef", "rootComponent"):
        raise Malformed("rootComponent.ownerRef", "the root has no owner")
    found: dict[str, Component] = {}
    entries = [(root, "rootComponent")]
    children = objects_at(definition, "childComponents", "structureDefinition")
    entries += [(child, f"childComponents[{i}]") for i, child in enumerate(children)]
    for entry, where in entries:
        component = _component(entry, where)
        if component.name in found:
            raise Malformed(f"{where}.name", f"{shown(component.name)} names two components")
        found[component.name] = component
    _refuse_orphans(found)
    return found


def _refuse_orphans(components: Mapping[str, Component]) -> None:
    root = next(iter(components))
    for component in components.values():
        seen: set[str] = set()
        name = component.name
        while name != root:
            parent = components[name].parent
            if parent not in components or name in seen:
                raise Malformed(f"{component.name}.ownerRef", f"{shown(parent)} does not lead to the root")
            seen.add(name)
            name = parent


def _component(entry: Json, where: str) -> Component:
    spec = object_at(entry, "specDefinition", where)
    selector = object_at(entry, "podSelector", where)
    kind = object_at(selector, "componentTypeSelector", where)
    instance = object_at(selector, "componentInstanceSelector", where)
    name = text_at(entry, "name", where)
    if not name:
        raise Malformed(f"{where}.name", "is missing")
    if len(_PODS & spec.keys()) > 1:
        raise Malformed(f"{where}.specDefinition", f"only one of {', '.join(sorted(_PODS))} is possible")
    scale = None
    if entry.get("scaleDefinition") is not None:
        said = object_at(entry, "scaleDefinition", where)
        scale = {key: _jq(said, key, where) for key in _SCALES if said.get(key)}
    component = Component(
        name=name,
        parent=text_at(entry, "ownerRef", where),
        leaf=bool(_PODS & spec.keys()),
        scale=scale,
        instances=_jq(entry, "instanceIdPath", where),
        type_path=_jq(kind, "keyPath", where),
        type_value=text_at(kind, "value", where) if kind.get("value") is not None else None,
        instance_path=_jq(instance, "idPath", where),
    )
    if bool(component.instances) != bool(component.instance_path):
        raise Malformed(where, "instanceIdPath and componentInstanceSelector need each other")
    return component


def _one_group(found: Structure, one: Json) -> Structure:
    where = "gangScheduling.podGroup"
    parts = []
    for i, entry in enumerate(objects_at(one, "subGroups", where)):
        inner = f"{where}.subGroups[{i}]"
        parts.append((text_at(entry, "componentName", inner), _topology(entry, inner)))
    name = text_at(one, "name", where)
    return replace(found, group=name, parts=tuple(parts), topology=_topology(one, where))


def _topology(holder: Json, where: str) -> GroupTopology | None:
    if holder.get("topology") is None:
        return None
    raw = object_at(holder, "topology", where)
    names = ("topologyName", "requiredTopologyLevel", "preferredTopologyLevel")
    return GroupTopology(*(text_at(raw, key, where) for key in names))


def _complete(what: str, topology: GroupTopology) -> GroupTopology:
    """A topology constraint. Raises ``BadKarta`` if it names no topology, or no level of it."""
    if not topology.name or not (topology.required or topology.preferred):
        raise BadKarta(f"{what}: its topology needs a name and a level")
    return topology


def _spelled(value: Any) -> str:
    """A value as a part of a name."""
    return value if isinstance(value, str) else json.dumps(value)


def _member(entry: Json, where: str, components: Mapping[str, Component]) -> Member:
    return Member(
        _known(entry, where, components),
        tuple(
            _checked(text, f"{where}.groupByKeyPaths") for text in texts_at(entry, "groupByKeyPaths", where)
        ),
        tuple(_checked(text, f"{where}.filters") for text in texts_at(entry, "filters", where)),
    )


def _known(entry: Json, where: str, components: Mapping[str, Component]) -> str:
    name = text_at(entry, "componentName", where)
    if name not in components:
        raise Malformed(f"{where}.componentName", f"{shown(name)} is not a component")
    return name


def _jq(holder: Json, key: str, where: str) -> str:
    text = text_at(holder, key, where)
    return _checked(text, f"{where}.{key}") if text else ""


def _checked(text: str, where: str) -> str:
    try:
        program(text)
    except ValueError as problem:
        raise Malformed(where, f"{shown(text)}: {str(problem).splitlines()[0]}") from None
    return text
