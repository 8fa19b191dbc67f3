"""Names by which a user asks: of a pod group, of a pod, or of a workload that owns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kai_cp.explain.draft import BadOperation, nearest
from kai_cp.explain.raw import group_of, key_of, metadata
from kai_cp.json_types import Json
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.snapshot import Snapshot

OURS = ("podgroup", "pod")


class SkippedTarget(BadOperation):
    """The pod or pod group that is asked about was skipped when the snapshot was read; the text says why."""


@dataclass(frozen=True, slots=True)
class AskedName:
    """``kind``: in small letters, empty if a pod group, pod or workload may be meant; ``namespace``: empty if
    any of them is meant.
    """

    kind: str
    namespace: str
    name: str

    def fits(self, key: str) -> bool:
        """Whether ``NAMESPACE/NAME`` may be meant."""
        space, _, name = key.partition("/")
        return name == self.name and self.namespace in ("", space)


def target_of(text: str, owned: Mapping[tuple[str, str], object]) -> AskedName:
    """``[KIND/][NAMESPACE/]NAME``; of two parts the first is a kind where objects of that kind are known.

    ``owned``: see :func:`owned_groups`. Raises ``BadOperation``.
    """
    *before, name = text.split("/")
    kinds = {*OURS, *(kind for kind, _ in owned)}
    if len(before) > 2 or not all((*before, name)):
        raise BadOperation(f"{text or '(empty)'}: expected [KIND/][NAMESPACE/]NAME, such as job/team-a/train")
    if len(before) == 2:
        return AskedName(before[0].lower(), before[1], name)
    if before and before[0].lower() in kinds:
        return AskedName(before[0].lower(), "", name)
    return AskedName("", before[0] if before else "", name)


def owned_groups(raw: Json) -> dict[tuple[str, str], list[str]]:
    """Pod groups (``NAMESPACE/NAME``) by kind and ``NAMESPACE/NAME`` of what owns them or their pods."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for item, group in _in_groups(raw):
        owners = metadata(item).get("ownerReferences")
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict):
                space = group.partition("/")[0]
                name = str(owner.get("kind")).lower(), f"{space}/{owner.get('name')}"
                found.setdefault(name, {})[group] = None
    return {name: list(groups) for name, groups in found.items()}


def _in_groups(raw: Json) -> Iterator[tuple[Json, str]]:
    """Pod groups and pods, each with its pod group."""
    for kind in ("podGroups", "pods"):
        items = raw["rawObjects"].get(kind)
        for item in items if isinstance(items, list) else ():
            group = (
                (key_of(item) if kind == "podGroups" else group_of(item)) if isinstance(item, dict) else None
            )
            if group is not None:
                yield item, group


def the_one(target: AskedName, known: Mapping[str, list[str]]) -> tuple[str, str]:
    """Kind and name of the only one that is meant. A name without a kind is that of a pod group, else of a
    pod, else of what owns them. Raises ``BadOperation``, which names the nearest.

    ``known``: names by kind.
    """
    owners = [kind for kind in known if kind not in OURS]
    for kinds in [[target.kind]] if target.kind else [*([kind] for kind in OURS), owners]:
        fitting = sorted({(kind, key) for kind in kinds for key in known.get(kind, ()) if target.fits(key)})
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise BadOperation(f"several have this name: {', '.join(map('/'.join, fitting[:4]))}")
    if target.kind and not known.get(target.kind):
        raise BadOperation(f"there is nothing of kind {target.kind}{nearest(target.kind, [*known])}")
    asked = f"{target.namespace}/{target.name}".lstrip("/")
    keys = known.get(target.kind, []) if target.kind else [key for names in known.values() for key in names]
    names = keys if target.namespace else sorted({key.partition("/")[2] for key in keys})
    what = target.kind or "pod group, pod or workload"
    raise BadOperation(f"there is no {what} {asked}{nearest(asked, names)}")


def asked_groups(names: Iterable[str], raw: Json, snapshot: Snapshot) -> list[GroupKey]:
    """The pod groups of names ``[KIND/][NAMESPACE/]NAME``; a name without namespace is looked for in all.

    Raises ``BadOperation`` for a name that means nothing or several things; ``SkippedTarget``.
    """
    owned = owned_groups(raw)
    known = {"podgroup": [*map(str, snapshot.group_by_key)], "pod": [*map(str, snapshot.pod_by_key)]}
    for entry in snapshot.set_aside:
        kind, _, name = entry.item.partition(" ")
        if kind.lower() in OURS:
            known[kind.lower()].append(name)
    for kind, name in owned:
        known.setdefault(kind, []).append(name)
    found: list[GroupKey] = []
    for text in names:
        kind, name = the_one(target_of(text, owned), known)
        groups = [(kind, name)] if kind in OURS else [("podgroup", group) for group in owned[kind, name]]
        found += [_with_pods(_group(snapshot, *one), raw, snapshot) for one in groups]
    return found


def _with_pods(key: GroupKey, raw: Json, snapshot: Snapshot) -> GroupKey:
    """The pod group itself. Raises ``SkippedTarget`` if it has no pod that can be used."""
    if snapshot.members[key]:
        return key
    said = f"podgroup {key} has no pod that runs or waits"
    reasons = {entry.item: entry.reason for entry in snapshot.set_aside}
    for item, group in _in_groups(raw):
        if group == str(key) and (reason := reasons.get(f"Pod {key_of(item)}")):
            said += f"; pod {key_of(item)} is left out of all decisions: {reason}"
            break
    raise SkippedTarget(said)


def _group(snapshot: Snapshot, kind: str, name: str) -> GroupKey:
    """The pod group of a pod group or pod that the snapshot, or a skipped object, has."""
    space, _, plain = name.partition("/")
    key: GroupKey | None = GroupKey(space, plain)
    title = "PodGroup" if kind == "podgroup" else "Pod"  # As the reader names what it skips.
    for entry in snapshot.set_aside:
        used = kind == "podgroup" and snapshot.members.get(GroupKey(space, plain))
        if entry.item == f"{title} {name}" and not used:
            raise SkippedTarget(f"{kind} {name} is left out of all decisions: {entry.reason}")
    if kind == "pod":
        pod = snapshot.pod_by_key[PodKey(space, plain)]
        key = pod.group
    if key is None or key not in snapshot.group_by_key:
        raise BadOperation(f"{kind} {name} belongs to no pod group of this scheduler")
    return key
