"""Product and NVLink domain of every node: as a label says, or else as the DRA devices of its GPUs say
(10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kai_cp_models.records.devices import DEVICES, Device
from kai_cp_models.snapshot import Snapshot
from kai_cp_topology.records import CLIQUE_LABEL, PRODUCT_LABEL


def labels_of(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    """The labels of every node by its name, with product and NVLink domain of its GPUs."""
    objects, gpus = snapshot.extras[DEVICES], defaultdict[str | None, list[Device]](list)
    for device in () if objects is None else objects.devices:
        if "gpu" in device.id.driver.lower():
            gpus[device.node].append(device)
    return {node.name: {**_told(gpus.get(node.name, ())), **_set(node.labels)} for node in snapshot.nodes}


def _set(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {k: v for k, v in labels.items() if v or k not in (CLIQUE_LABEL, PRODUCT_LABEL)}


def _told(gpus: Sequence[Device]) -> Mapping[str, str]:
    """What the devices of a node agree on."""
    said = [{(name, str(value)) for (_, name), (_, value) in gpu.view.attributes} for gpu in gpus]
    alike = dict(sorted(set[tuple[str, str]].intersection(*said))) if said else {}
    found = {PRODUCT_LABEL: alike.get("productName", "").replace(" ", "-")}
    if "cliqueID" in alike:
        found[CLIQUE_LABEL] = f"{alike.get('clusterUUID', '')}.{alike['cliqueID']}"
    return {label: value for label, value in found.items() if value}
