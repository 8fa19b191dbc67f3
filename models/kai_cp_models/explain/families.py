"""Rule families: what an explanation switches on and off as a whole, in the order in which it names them.

A family is a name (``taint``), or a name with a subject (``room:gpu``, ``limit:team-a``, ``action:reclaim``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Family = str
Families = frozenset[str]

ORDER: Final = (
    "queue",
    "readiness",
    "backoff",
    "dependency",
    "selector",
    "taint",
    "node-condition",
    "gpu-kind",
    "worker",
    "room",
    "fragmentation",
    "topology",
    "affinity",
    "ports",
    "volumes",
    "dra",
    "numa",
    "spread",
    "limit",
    "kind-limit",
    "quota",
    "priority",
    "non-preemptible",
    "fair-share",
    "min-runtime",
    "pdb",
    "delay",
    "action",
    "consolidation",
    "order",
)
"""A set is shrunk from the end of this order, so earlier families are kept first.

A node rule names its family itself, as ``FAMILY`` or ``RuleState.family``.
"""

TAKEN_AS_GIVEN: Final = frozenset(("queue", "readiness", "backoff", "dependency"))
"""What the pod group itself lacks."""
DEVICE_RULES: Final = frozenset(("affinity", "ports", "volumes", "dra", "numa", "spread"))
VICTIM_RULES: Final = frozenset(
    (
        "priority",
        "non-preemptible",
        "fair-share",
        "min-runtime",
        "pdb",
        "delay",
        "action",
        "consolidation",
        "order",
    )
)
"""Families that keep other pods in place; a blocking set without any is a statement about the hardware."""


def kind_of(family: Family) -> str:
    """The name of a family without its subject."""
    return family.split(":", 1)[0]


def subject_of(family: Family) -> str:
    """What a family is about: a resource, a queue, an action; "" when there is only one."""
    return family.partition(":")[2]


def rank(family: Family) -> tuple[int, str]:
    """Position of a family in ``ORDER``; ties alphabetically."""
    return ORDER.index(kind_of(family)), family


def ordered(families: Iterable[Family]) -> list[Family]:
    """Families in their order."""
    return sorted(families, key=rank)


def set_key(families: Families) -> tuple[int, list[tuple[int, str]]]:
    """Order of blocking sets: the smaller first, then by the first family that differs."""
    return len(families), [rank(family) for family in ordered(families)]
