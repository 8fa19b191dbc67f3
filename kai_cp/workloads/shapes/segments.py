"""Segments: equal pieces of a gang that stay together in a topology (8.5)."""

from __future__ import annotations

from typing import Final

from kai_cp.workloads import keys
from kai_cp.workloads.groups import NOWHERE, GroupTopology
from kai_cp.workloads.items import Item, Path, annotation, object_in, spelled_integer
from kai_cp.workloads.rows import template_annotations

MOST: Final = 10_000
"""Segments of one gang; KAI refuses more too."""


def stated_size(item: Item, where: str, text: str | None) -> int | None:
    """A segment size written as an annotation; None without one."""
    return None if text is None else spelled_integer(item, where, text)


def size_of_pod(pod: Item) -> int | None:
    """The segment size that a pod names."""
    return stated_size(pod, annotation(keys.SEGMENT_SIZE), pod.annotations.get(keys.SEGMENT_SIZE))


def size_of_template(owner: Item, template: Path) -> int | None:
    """The segment size that a pod template names."""
    found = template_annotations(owner, template).get(keys.SEGMENT_SIZE)
    where = template.below("metadata", "annotations", keys.SEGMENT_SIZE)
    return stated_size(owner, str(where), found)


def segment_placement(pod: Item, owner: Item, template: Path) -> GroupTopology:
    """The constraint of each segment: levels from pod or template; the topology's name may be the owner's."""
    if object_in(owner, template) is None:
        return NOWHERE
    given = template_annotations(owner, template)

    def said(key: str) -> str:
        return pod.annotations.get(key) or given.get(key, "")

    name = said(keys.TOPOLOGY) or owner.annotations.get(keys.TOPOLOGY, "")
    wanted = GroupTopology(name, said(keys.SEGMENT_REQUIRED), said(keys.SEGMENT_PREFERRED))
    return wanted if name and (wanted.required or wanted.preferred) else NOWHERE


def refuse_too_many(owner: Item, count: int) -> None:
    """GroupingError beyond :data:`MOST`."""
    if count > MOST:
        raise owner.bad(annotation(keys.SEGMENT_SIZE), f"{count} segments; at most {MOST} are possible")
