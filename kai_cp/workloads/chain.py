"""The way from a pod up to the workload that it belongs to (10.4)."""

from __future__ import annotations

from dataclasses import dataclass

from kai_cp import keys
from kai_cp.workloads.items import GroupingError, Item
from kai_cp.workloads.reads import Forbidden, Reads

_LONGEST = 16
"""Owners in a chain; real ones have a handful, and each may cost a request."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Owners of a pod, from its direct owner up to the workload; empty for a bare pod.

    ``forbidden``: the owner that may not be read, in words, where the walk had to end early; "" if none.
    """

    owners: tuple[Item, ...] = ()
    forbidden: str = ""

    @property
    def skipped(self) -> bool:
        """Whether an owner asks to be left alone."""
        return any(owner.annotations.get(keys.SKIP) == "true" for owner in self.owners)


class OwnerMissing(GroupingError):
    """An owner is not there, or another one of its name is."""


def walk(pod: Item, reads: Reads) -> Chain:
    """The owners of ``pod``, the nearest first.

    Raises ``OwnerMissing`` if one does not exist or was replaced, and ``GroupingError`` if one has several
    owners.
    """
    owners: list[Item] = []
    upward = pod.owners[:1]  # Further owners of the pod itself do not count.
    while upward:
        reference = upward[0]
        what = f"{reference.kind} {pod.namespace}/{reference.name}"
        try:
            owner = reads.owner(reference, pod.namespace)
        except Forbidden:
            return Chain(tuple(owners), f"{reference.kind}.{reference.group or 'core'}")
        if owner is None:
            raise OwnerMissing(pod.what, "metadata.ownerReferences", f"{what} is not there")
        if owner.uid != reference.uid:
            raise OwnerMissing(
                pod.what,
                "metadata.ownerReferences",
                f"{what} was replaced: it is {owner.uid}, not {reference.uid}",
            )
        if owner.uid and owner.uid in (pod.uid, *(below.uid for below in owners)):
            raise pod.bad("metadata.ownerReferences", f"{what} is its own owner")
        owners.append(owner)
        upward = owner.owners
        if len(upward) > 1:
            raise owner.bad("metadata.ownerReferences", "several owners; only one can be followed")
        if len(owners) > _LONGEST:
            raise pod.bad("metadata.ownerReferences", f"more than {_LONGEST} owners above each other")
    return Chain(tuple(owners))
