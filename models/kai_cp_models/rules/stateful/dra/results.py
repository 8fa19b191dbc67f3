"""Allocations against the catalog: those that claims have, and those of decisions in the API's form."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.pods import NodeTerms, Requirement
from kai_cp_models.quantity import text
from kai_cp_models.records.devices import Claim, ClaimAllocation, DeviceObject
from kai_cp_models.rules.stateful.dra.catalog import Catalog, capacity_of
from kai_cp_models.rules.stateful.dra.search import Pick
from kai_cp_models.rules.stateful.nodes import selected

_SHARES: Final = uuid.UUID("6f1ddc5c-0a49-5d3c-9d54-7f6f5f6b1d11")
"""Namespace of share ids: a name-based UUID, so that equal input gives equal decisions."""


@dataclass(frozen=True)
class DeviceShare:
    """A device inside an allocation; ``amounts``: what it takes of a shareable device, else None."""

    device: int
    admin: bool
    amounts: tuple[tuple[tuple[str, str], Any], ...] | None


@dataclass(frozen=True, eq=False)
class Allocation:
    """The devices that a claim holds, and the nodes that can use them (None: all)."""

    shares: tuple[DeviceShare, ...]
    nodes: Mask | None
    written: DeviceObject
    """The same in the API's form."""

    def usable(self, node: int) -> bool:
        """Whether a pod on the node can use the allocation."""
        return self.nodes is None or bool(self.nodes[node])


def found_in(catalog: Catalog, given: ClaimAllocation) -> Allocation:
    """An allocation from a claim's status or a BindRequest.

    It is usable where its node selector and the places of its devices allow. Devices that no slice
    publishes any more hold nothing.
    """
    nodes = selected(catalog.snapshot, given.nodes)
    shares = []
    for result in given.results:
        found = catalog.index.get(result.device)
        if found is None:
            continue
        device = catalog.devices[found]
        own = int(catalog.node_of[found])
        reach = catalog.reach.get(found)
        if reach is None:
            reach = np.arange(len(catalog.snapshot.nodes)) == own
        nodes = reach if nodes is None else nodes & reach
        amounts = None
        if device.view.shareable:
            amounts = tuple(sorted((capacity_of(device, name), value) for name, value in result.consumed))
            amounts = amounts or device.view.capacity
        shares.append(DeviceShare(found, result.admin, amounts))
    return Allocation(tuple(shares), nodes, given.written)


def write(catalog: Catalog, claim: Claim, picks: Sequence[Pick], node: int) -> Allocation:
    """The allocation of a claim that follows from ``picks`` on a node."""
    results, bound, selectors = [], False, []
    for number, pick in enumerate(picks):
        device = catalog.devices[pick.device]
        bound |= device.node is not None or device.binds_to_node
        if device.selector is not None:
            selectors.append(device.selector)
        result: dict[str, Any] = {
            "request": pick.request,
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
        }
        if pick.admin:
            result["adminAccess"] = True
        if pick.amounts is not None:
            result["shareID"] = str(uuid.uuid5(_SHARES, f"{claim.uid}/{pick.request}/{number}"))
            result["consumedCapacity"] = _written(pick.amounts, device.id.driver)
        results.append(result)
    devices: dict[str, Any] = {"results": results}
    config = _config(catalog, claim, [pick.request for pick in picks])
    if config:
        devices["config"] = config
    document: dict[str, Any] = {"devices": devices}
    selector = _only(catalog.snapshot.nodes[node].name) if bound else _merged(selectors)
    if selector is not None:
        document["nodeSelector"] = _selector(selector)
    nodes = selected(catalog.snapshot, selector)
    return Allocation(
        tuple(DeviceShare(pick.device, pick.admin, pick.amounts) for pick in picks), nodes, document
    )


def _written(amounts: Sequence[tuple[tuple[str, str], Any]], driver: str) -> dict[str, str]:
    return {
        name if domain == driver else f"{domain}/{name}": text(value) for (domain, name), value in amounts
    }


def _config(catalog: Catalog, claim: Claim, chosen: Sequence[str]) -> list[dict[str, Any]]:
    """Driver configuration of the classes and the claim for the requests that were served."""
    served = dict.fromkeys(chosen)
    found = []
    for alternatives in claim.requests:
        for wanted in alternatives:
            if wanted.name in served:
                for config in catalog.classes[wanted.device_class].config:
                    found.append({"source": "FromClass", "requests": [wanted.name], **config})
    for config in claim.config:
        asked = config.get("requests") or ()
        names = [n for n in served if n in asked or n.partition("/")[0] in asked]
        if names or not asked:
            found.append({**config, "source": "FromClaim", "requests": names})
    return found


def _only(node: str) -> NodeTerms:
    return ((Requirement("metadata.name", "In", (node,), field=True),),)


def _merged(selectors: Sequence[NodeTerms]) -> NodeTerms | None:
    """One term with the requirements of all (a slice's selector has exactly one term)."""
    needs = dict.fromkeys(need for terms in selectors for term in terms for need in term)
    return (tuple(needs),) if needs else None


def _selector(terms: NodeTerms) -> dict[str, Any]:
    """A core/v1 NodeSelector in the API's form."""
    found = []
    for term in terms:
        parts: dict[str, Any] = {}
        for need in sorted(term, key=lambda need: need.field):
            entry: dict[str, Any] = {"key": need.key, "operator": need.operator}
            if need.values:
                entry["values"] = list(need.values)
            parts.setdefault("matchFields" if need.field else "matchExpressions", []).append(entry)
        found.append(parts)
    return {"nodeSelectorTerms": found}


__all__ = ["Allocation", "DeviceShare", "found_in", "write"]
