"""How close together the pods of placed gangs are, as a plan reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GroupKey, Pod
from kai_cp_topology.locality import locality
from kai_cp_topology.records import Locality, NodeFacts


def localities(ledger: Ledger) -> dict[GroupKey, Locality]:
    """The locality of every pod group that gets a place and then has GPUs on several nodes.

    All its pods count, including those that ran before and those of unknown subgroups. Empty where the
    snapshot does not show which nodes are close to each other.
    """
    snapshot, gangs = ledger.snapshot, ledger.fixed.gangs
    several = (key for key in sorted(ledger.touched) if len(snapshot.members[key]) > 1)
    served = (key for key in several if ledger.serves(gangs[key]))
    spread = {key: held for key in served if len(held := _gpus_by_node(ledger, snapshot.members[key])) > 1}
    found = {}
    # Computing the fabric of a large cluster takes a while, and only gangs on several nodes need it.
    fabric = ledger.fixed.fabric if spread else None
    if fabric is not None:
        for key, held in spread.items():
            nodes = {i: NodeFacts(snapshot.nodes[i].name, fabric.labels[i], fabric.gpus[i]) for i in held}
            found[key] = locality(nodes, fabric.scales, held)
    return found


def _gpus_by_node(ledger: Ledger, pods: Iterable[Pod]) -> Counter[int]:
    """GPUs that the pods hold on each node, shared ones included."""
    held: Counter[int] = Counter()
    for pod in pods:
        place = ledger.place_of(pod) if ledger.status(pod) in ACTIVE_ALLOCATED else None
        count = pod.spec.gpu.devices if pod.spec.gpu.shares else pod.spec.requests[GPU] // MILLI
        if place is not None and count:
            held[place[0]] += count
    return held
