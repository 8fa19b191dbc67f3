"""Product and NVLink domain of a node's GPUs by their DRA devices, for nodes whose labels do not state
them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kai_cp_models.records.devices import DEVICES, Device
from kai_cp_models.rules.stateful.dra.amounts import is_gpu
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL, NodeFacts


def gpus_by_node(snapshot: Snapshot) -> Mapping[str, Sequence[Device]]:
    """GPUs that DRA hands out, by node."""
    objects = snapshot.extras[DEVICES]
    found: dict[str, list[Device]] = defaultdict(list)
    for device in () if objects is None else objects.devices:
        if device.node is not None and is_gpu(device.id.driver):
            found[device.node].append(device)
    return found


def shared_attributes(gpus: Iterable[Device]) -> dict[str, str]:
    """Attributes by plain name that all GPUs share; others are not attributes of the node."""
    each = [{(name, str(value)) for (_, name), (_, value) in device.view.attributes} for device in gpus]
    return dict(sorted(set.intersection(*each))) if each else {}


def hardware_labels(snapshot: Snapshot) -> list[Mapping[str, str]]:
    """The labels of every node, with product and NVLink domain from DRA where a label is missing."""
    labels = [node.labels for node in snapshot.nodes]
    if not any(node.dra_gpus and not _told(node.labels) for node in snapshot.nodes):
        return labels
    gpus = gpus_by_node(snapshot)
    for i, node in enumerate(snapshot.nodes):
        if node.name in gpus and not _told(node.labels):
            facts = NodeFacts(node.name, node.labels, attributes=shared_attributes(gpus[node.name]))
            told = {PRODUCT_LABEL: facts.product, CLIQUE_LABEL: facts.clique}
            labels[i] = {**node.labels, **{label: value for label, value in told.items() if value}}
    return labels


def _told(labels: Mapping[str, str]) -> bool:
    return bool(labels.get(PRODUCT_LABEL) and labels.get(CLIQUE_LABEL))
