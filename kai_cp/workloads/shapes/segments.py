"""Segments: equal pieces of a gang that stay together in a topology (8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kai_cp import keys
from kai_cp.workloads.groups import NOWHERE, GroupTopology
from kai_cp.workloads.items import Item, Path, annotation, spelled_integer, value_at
from kai_cp.workloads.rows import template_annotations

MOST: Final = 10_000
"""Segments of one gang; KAI refuses more too."""


def stated_sizes(*said: tuple[Item, Path | None]) -> Iterator[tuple[int, Item, str]]:
    """The segment sizes that objects name in their own annotations or in those of a pod template, with the
    field of each; an empty annotation names none.
    """
    for item, template in said:
        annotations, where = item.annotations, annotation(keys.SEGMENT_SIZE)
        if template is not None:
            annotations = template_annotations(item, str(template), value_at(item, template))
            where = f"{template}.{where}"
        text = annotations.get(keys.SEGMENT_SIZE)
        if text:
            yield spelled_integer(item, where, text), item, where


def segment_placement(pod: Item, owner: Item, template: Path) -> GroupTopology:
    """The constraint of each segment: levels from pod or template; the topology's name may be the owner's."""
    given = template_annotations(owner, str(template), value_at(owner, template))

    def said(key: str) -> str:
        return pod.annotations.get(key) or given.get(key, "")

    name = said(keys.TOPOLOGY) or owner.annotations.get(keys.TOPOLOGY, "")
    wanted = GroupTopology(name, said(keys.SEGMENT_REQUIRED), said(keys.SEGMENT_PREFERRED))
    return wanted if name and (wanted.required or wanted.preferred) else NOWHERE


def refuse_too_many(owner: Item, count: int) -> None:
    """GroupingError beyond :data:`MOST`."""
    if count > MOST:
        raise owner.bad(annotation(keys.SEGMENT_SIZE), f"{count} segments; at most {MOST} are possible")
