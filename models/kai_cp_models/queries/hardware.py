"""What nodes have besides capacity, as far as a pod group can tell: devices and NUMA zones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kai_cp_models.explain.situation import Situation
from kai_cp_models.pods import Pod
from kai_cp_models.records.devices import Constraint, Device, Wanted
from kai_cp_models.records.zones import TOPOLOGIES
from kai_cp_models.rules.stateful.dra.catalog import CATALOG, Catalog
from kai_cp_models.rules.stateful.dra.refs import refs_of
from kai_cp_models.snapshot import PodGroup


def hardware_of(situation: Situation, group: PodGroup) -> list[Hashable]:
    """[N] a key for each node: equal where the pods of a group cannot tell devices and zones apart.

    Only the properties of a device count that requests of the group's claims, or device classes that provide
    extended resources, ask for; names and serial numbers do not.
    """
    snapshot = situation.snapshot
    zones: dict[str, Hashable] = {}
    for one in snapshot.extras[TOPOLOGIES]:
        amounts = tuple(tuple(sorted(zone.items())) for zone in one.allocatable)
        zones[one.node] = one.policy, one.by_container, amounts
    catalog = snapshot.extras[CATALOG]
    devices: dict[int, list[str]] = {}
    if catalog is not None:
        wanted, constraints = _asked(situation, catalog, situation.gang(group.key).pods)
        fits = [catalog.satisfying(one) for one in wanted]
        for node, local in catalog.local.items():
            seen = (_seen(catalog.devices[i], constraints) for i in local)
            serves = (tuple(bool(mask[i]) for mask in fits) for i in local)
            devices[node] = sorted(map(repr, zip(seen, serves, strict=True)))
    return [(zones.get(node.name), tuple(devices.get(i, ()))) for i, node in enumerate(snapshot.nodes)]


def _asked(
    situation: Situation, catalog: Catalog, pods: Sequence[Pod]
) -> tuple[list[Wanted], list[Constraint]]:
    """What the claims of the pods and extended resources may ask for, and what must agree among devices."""
    names = ((pod.key.namespace, ref.claim) for pod in pods for ref in refs_of(situation.snapshot, pod))
    claims = [catalog.claims[key] for key in names if key in catalog.claims]
    wanted = [one for claim in claims for ways in claim.requests for one in ways]
    wanted += [Wanted("", each.name) for each in catalog.extended().values()]
    found = dict.fromkeys(one for one in wanted if catalog.usable(one))
    return list(found), list(dict.fromkeys(one for claim in claims for one in claim.constraints))


def _seen(device: Device, constraints: Sequence[Constraint]) -> Hashable:
    """What distinguishes a device from others, apart from the requests that it serves."""
    attributes = dict(device.view.attributes)
    told = tuple(attributes.get(one.attribute) for one in constraints)
    amounts = sorted((counter.counter, amount) for counter, amount in device.consumes)
    return device.id.driver, device.view.capacity, device.view.shareable, device.taints, told, tuple(amounts)
