"""Kinds described by a Karta object of the cluster, in jq expressions (10.6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, object_at, objects_at, shown, text_at, texts_at
from kai_cp.workloads.groups import Grouped, GroupSubgroup, GroupTopology
from kai_cp.workloads.items import GroupingError, Item
from kai_cp.workloads.reads import Reads
from kai_cp.workloads.workload import Workload, inherited

GROUP_LABEL: Final = "run.ai/karta-group"
VERSION_LABEL: Final = "run.ai/karta-version"
KIND_LABEL: Final = "run.ai/karta-kind"
_ENDLESS: Final = re.compile(
    r"\b(def|while|until|repeat|recurse|range|limit|input|inputs|debug|env|input_filename)\b|\$ENV|\$__"
)
_LONGEST: Final = 1000


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
    replicas: str = ""
    min_replicas: str = ""
    scaled: bool = False
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
    """A usable Karta. ``group`` names a workload's only group; "" if ``members`` divide its pods."""

    components: Mapping[str, Component]
    root: str
    group: str = ""
    parts: tuple[tuple[str, GroupTopology], ...] = ()
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
    usable = []
    for item in reads.kartas(reference.group, reference.version, reference.kind):
        try:
            structure = structure_of(item.raw)
        except BadKarta:
            continue
        if structure is not None and _root_kind(item.raw) == reference.kind and not item.deleted:
            usable.append((item, structure))
    if len(usable) != 1:
        return None
    karta, structure = usable[0]
    group = inherited(replace(workload, owner=root))
    reader = _Reader(karta, structure, root, pod)
    try:
        if structure.group:
            return reader.whole(group)
        return reader.divided(group)
    except BadKarta as problem:
        raise GroupingError(f"Karta {karta.name}", "", f"{problem} (for {root.what})") from None


class _Reader:
    """Evaluates one Karta for one workload and pod."""

    def __init__(self, karta: Item, structure: Structure, root: Item, pod: Item) -> None:
        self._karta = karta
        self._structure = structure
        self._root = root
        self._pod = pod

    def whole(self, group: Any) -> Grouped:
        """One group for the workload, with a subgroup for each listed component."""
        structure = self._structure
        group = replace(group, name=f"pg-{self._root.uid}-{structure.group}")
        if structure.topology is not None:
            group = replace(group, topology=structure.topology)
        if not structure.parts:
            return Grouped(replace(group, min_member=self._scale(structure.root)))
        subgroups, inside = [], ""
        for name, topology in structure.parts:
            least = self._scale(name)
            if least <= 0:
                raise BadKarta(f"component {name}: its scale is 0")
            subgroups.append(GroupSubgroup(name, least, topology=topology))
            if not inside and any(self._selects(component) for component in structure.subtree(name)):
                inside = name
        return Grouped(replace(group, min_subgroup=len(subgroups), subgroups=tuple(subgroups)), inside)

    def divided(self, group: Any) -> Grouped:
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
                if member.component == name and all(self._holds(text) for text in member.filters):
                    keys = [self._text(self._pod.raw, text) for text in member.group_by]
                    own = member.component == leaf.name
                    least = self._instance_scale(leaf) if own else self._scale(member.component)
                    full = "-".join([f"pg-{self._root.uid}", *keys])
                    return Grouped(replace(group, name=full, min_member=least))
        raise BadKarta("no member of a pod group takes the pod")

    def _scale(self, name: str) -> int:
        """The number of pods of a component and its descendants."""
        if not any(component.scaled for component in self._structure.components.values()):
            leaves = [component for component in self._structure.subtree(name) if component.leaf]
            return sum(max(1, len(self._instances(component))) for component in leaves)
        own = sum(self._scales(self._structure.components[name]))
        inner = sum(self._scale(child.name) for child in self._structure.below(name))
        return own * inner if own and inner else own or inner

    def _scales(self, component: Component) -> list[int]:
        """The scale of each instance of a component: its least replicas, or else its replicas."""
        least = self._numbers(component.min_replicas)
        usual = self._numbers(component.replicas)
        count = max(len(least), len(usual))
        least += [0] * (count - len(least))
        usual += [0] * (count - len(usual))
        return [a if a > 0 else max(b, 0) for a, b in zip(least, usual, strict=True)]

    def _instance_scale(self, leaf: Component) -> int:
        """Pods of the pod's own instance of its component."""
        scales, instances = self._scales(leaf), self._instances(leaf)
        if leaf.instance_path and len(scales) == len(instances):
            name = self._text(self._pod.raw, leaf.instance_path)
            if name in instances:
                return scales[instances.index(name)]
        return scales[0] if len(scales) == 1 else self._scale(leaf.name)

    def _instances(self, component: Component) -> list[str]:
        if not component.instances:
            return []
        return [
            str(value) for value in self._values(self._root.raw, component.instances) if value is not None
        ]

    def _numbers(self, text: str) -> list[int]:
        if not text:
            return []
        found = []
        for value in self._values(self._root.raw, text):
            if value is not None and type(value) is not int:
                raise BadKarta(f"{text}: {shown(value)} is not a whole number")
            found.append(value or 0)
        return found

    def _selects(self, component: Component) -> bool:
        if not component.type_path:
            return False
        found = self._values(self._pod.raw, component.type_path)
        wanted = component.type_value
        if wanted is None:
            return any(value is not None for value in found)
        return any(value == wanted or (value is not None and str(value) == wanted) for value in found)

    def _holds(self, text: str) -> bool:
        found = self._values(self._pod.raw, text)
        return bool(found) and all(value is True for value in found)

    def _text(self, raw: Json, text: str) -> str:
        found = [value for value in self._values(raw, text) if value is not None]
        if len(found) != 1:
            raise BadKarta(f"{text}: names {len(found)} values in the pod; one is needed")
        return str(found[0])

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

    found = _ENDLESS.search(text)
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
        one = object_at(gang, "podGroup", "gangScheduling")
        if one:
            return _one_group(one, components, root)
        members = tuple(
            _member(entry, f"gangScheduling.podGroups[{i}].members[{j}]", components)
            for i, group in enumerate(objects_at(gang, "podGroups", "gangScheduling"))
            for j, entry in enumerate(objects_at(group, "members", f"gangScheduling.podGroups[{i}]"))
        )
        return Structure(components, root, members=members) if members else None
    except Malformed as problem:
        raise BadKarta(str(problem)) from None


def _root_kind(raw: Json) -> str:
    try:
        definition = object_at(object_at(raw, "spec"), "structureDefinition")
        return text_at(object_at(object_at(definition, "rootComponent"), "kind"), "kind")
    except Malformed:
        return ""


def _components(definition: Json) -> dict[str, Component]:
    root = object_at(definition, "rootComponent", "structureDefinition")
    kind = object_at(root, "kind", "rootComponent")
    for key in ("version", "kind"):
        if not text_at(kind, key, "rootComponent.kind"):
            raise Malformed(f"rootComponent.kind.{key}", "is missing")
    if not object_at(root, "statusDefinition", "rootComponent"):
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
    scale = object_at(entry, "scaleDefinition", where)
    selector = object_at(entry, "podSelector", where)
    kind = object_at(selector, "componentTypeSelector", where)
    instance = object_at(selector, "componentInstanceSelector", where)
    name = text_at(entry, "name", where)
    if not name:
        raise Malformed(f"{where}.name", "is missing")
    component = Component(
        name=name,
        parent=text_at(entry, "ownerRef", where),
        leaf=bool({"podTemplateSpecPath", "podSpecPath", "fragmentedPodSpecDefinition"} & spec.keys()),
        replicas=_jq(scale, "replicasPath", where),
        min_replicas=_jq(scale, "minReplicasPath", where),
        scaled=bool(scale),
        instances=_jq(entry, "instanceIdPath", where),
        type_path=_jq(kind, "keyPath", where),
        type_value=text_at(kind, "value", where) if kind.get("value") is not None else None,
        instance_path=_jq(instance, "idPath", where),
    )
    if bool(component.instances) != bool(component.instance_path):
        raise Malformed(where, "instanceIdPath and componentInstanceSelector need each other")
    return component


def _one_group(one: Json, components: Mapping[str, Component], root: str) -> Structure:
    where = "gangScheduling.podGroup"
    name = text_at(one, "name", where)
    if not name:
        raise Malformed(f"{where}.name", "is missing")
    parts = []
    for i, entry in enumerate(objects_at(one, "subGroups", where)):
        inner = f"{where}.subGroups[{i}]"
        component = _known(entry, inner, components)
        parts.append((component, _topology(entry, inner) or GroupTopology()))
    return Structure(components, root, name, tuple(parts), _topology(one, where))


def _topology(holder: Json, where: str) -> GroupTopology | None:
    raw = object_at(holder, "topology", where)
    if not raw:
        return None
    name, required, preferred = (
        text_at(raw, key, where)
        for key in ("topologyName", "requiredTopologyLevel", "preferredTopologyLevel")
    )
    if not name or not (required or preferred):
        raise Malformed(f"{where}.topology", "a topology name and a level are needed")
    return GroupTopology(name, required, preferred)


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
