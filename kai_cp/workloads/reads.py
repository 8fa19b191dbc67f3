"""What the grouper asks of the cluster. A live cluster and a file of objects both answer this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kai_cp.json_types import Json
from kai_cp.workloads.defaults import KindDefaults
from kai_cp.workloads.items import Item, Reference


class Forbidden(Exception):
    """The account may not read the object."""


class Reads(Protocol):
    """Objects by name, None when they are not there; the first two may raise :class:`Forbidden`."""

    def owner(self, reference: Reference, namespace: str) -> Item | None:
        """At least the metadata of an owner; its uid may be another than the reference's."""
        ...

    def whole(self, reference: Reference, namespace: str) -> Item | None:
        """All of an object; the reference's uid may be empty."""
        ...

    def pod_group(self, namespace: str, name: str) -> Json | None:
        """A PodGroup."""
        ...

    def pod_groups(self, namespace: str, prefix: str) -> Iterable[Json]:
        """PodGroups whose names begin with ``prefix``."""
        ...

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Iterable[Item]:
        """Pods with all these labels."""
        ...

    def has_priority_class(self, name: str) -> bool:
        """Whether a PriorityClass of that name exists."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a namespace; None when it cannot be read."""
        ...

    def kind_defaults(self) -> KindDefaults:
        """Defaults by kind from the configured ConfigMap; empty without a usable one."""
        ...

    def kartas(self, group: str, version: str, kind: str) -> Sequence[Item]:
        """Kartas labelled with the kind; empty where Karta is not installed."""
        ...
