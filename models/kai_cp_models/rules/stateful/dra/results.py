"""Allocations as the API writes them: reading those of claims, writing those of decisions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kai_cp_models.arrays import Mask
from kai_cp_models.quantity import exact, text
from kai_cp_models.rules.stateful.dra.catalog import Catalog, capacity_of
from kai_cp_models.rules.stateful.dra.objects import Claim, DeviceId
from kai_cp_models.rules.stateful.dra.search import Pick
from kai_cp_models.rules.stateful.nodes import selected
from kai_cp_models.rules.stateful.raw import Raw

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
    """What a claim holds: devices, the nodes that can use them (None: all), and the API's form."""

    shares: tuple[DeviceShare, ...]
    nodes: Mask | None
    raw: Raw

    def usable(self, node: int) -> bool:
        """Whether a pod on the node can use the allocation."""
        return self.nodes is None or bool(self.nodes[node])


def read(catalog: Catalog, raw: Raw) -> Allocation:
    """An allocation from a claim's status or a BindRequest.

    It is usable where its node selector and the places of its devices allow. Devices that no slice
    publishes any more hold nothing.
    """
    nodes = selected(catalog.snapshot, raw.get("nodeSelector"))
    shares = []
    for result in (raw.get("devices") or {}).get("results") or ():
        found = catalog.index.get(DeviceId(result["driver"], result["pool"], result["device"]))
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
            written: Mapping[str, Any] = result.get("consumedCapacity") or {}
            amounts = tuple(sorted((capacity_of(device, n), exact(str(v))) for n, v in written.items()))
            amounts = amounts or device.view.capacity
        shares.append(DeviceShare(found, bool(result.get("adminAccess")), amounts))
    return Allocation(tuple(shares), nodes, raw)


def write(catalog: Catalog, claim: Claim, picks: Sequence[Pick], node: int) -> Allocation:
    """The allocation that ``picks`` on a node mean for a claim."""
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
    raw: dict[str, Any] = {"devices": devices}
    selector = _only(catalog.snapshot.nodes[node].name) if bound else _merged(selectors)
    if selector:
        raw["nodeSelector"] = selector
    nodes = selected(catalog.snapshot, selector)
    return Allocation(tuple(DeviceShare(pick.device, pick.admin, pick.amounts) for pick in picks), nodes, raw)


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


def _only(node: str) -> Raw:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _merged(selectors: Sequence[Raw]) -> Raw | None:
    """One term with the requirements of all (a slice's selector has exactly one term)."""
    term: dict[str, list[Any]] = {}
    for selector in selectors:
        for each in selector.get("nodeSelectorTerms") or ():
            for kind in ("matchExpressions", "matchFields"):
                needs = term.setdefault(kind, [])
                needs += [need for need in each.get(kind) or () if need not in needs]
    kept = {kind: needs for kind, needs in term.items() if needs}
    return {"nodeSelectorTerms": [kept]} if kept else None


__all__ = ["Allocation", "DeviceShare", "read", "write"]
