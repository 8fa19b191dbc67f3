"""What a waiting pod group needs, class by class, and which node rules refuse it where."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from kai_cp_models.arrays import Mask
from kai_cp_models.certificates import dead_end
from kai_cp_models.explain.families import Family
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import ACTIVE_ALLOCATED, GPU, MILLI, GpuKind, Pod
from kai_cp_models.rules.static import STATIC_RULES
from kai_cp_models.snapshot import Subgroup
from kai_cp_models.units import Batch, Gang


@dataclass
class AskClass:
    """Pods of the batch that no rule can tell apart. ``scopes``: constrained subgroups above them."""

    example: Pod
    scopes: tuple[Subgroup, ...]
    count: int = 0
    refused: Mapping[Family, Mask] = field(default_factory=dict)
    """[N] nodes that a static family refuses."""
    missing: str = ""
    """What the pod needs and no node has (4.3)."""

    def milli_gpus(self, ledger: Ledger) -> int:
        """GPUs of one pod in milli-GPUs; a share by memory counts the least part that it takes of any
        device."""
        gpu = self.example.spec.gpu
        if not gpu.shares:
            return self.example.spec.requests[GPU]
        if gpu.kind is GpuKind.FRACTION:
            return gpu.milli_portion * gpu.devices
        largest = int(ledger.fixed.table.gpu_memory_mib.max(initial=1))
        return max(1, MILLI * gpu.memory_mib // largest) * gpu.devices


def classes_of(ledger: Ledger, gang: Gang, batch: Batch | None) -> list[AskClass]:
    """The classes of a batch; if no batch of the gang can be made, the classes of its waiting pods."""
    found: dict[Hashable, AskClass] = {}
    parts = batch.leaves if batch is not None else []
    for scopes, leaf in parts:
        name = leaf.subgroup.name if scopes else ""
        for pod in leaf.pods:
            _count(found, ledger, pod, scopes, name)
    if not parts:
        for pod in gang.pods or gang.unknown_subgroup_pods:
            if ledger.status(pod) not in ACTIVE_ALLOCATED:
                _count(found, ledger, pod, (), "")
    return list(found.values())


def _count(
    found: dict[Hashable, AskClass], ledger: Ledger, pod: Pod, scopes: tuple[Subgroup, ...], name: str
) -> None:
    special = tuple((rule.name, rule.identity(pod)) for rule in ledger.rules if rule.concerns(pod))
    key = (name, pod.spec, special)
    if key not in found:
        found[key] = AskClass(pod, scopes, 0, _refused(ledger, pod), _missing(ledger, pod))
    found[key].count += 1


def _refused(ledger: Ledger, pod: Pod) -> dict[Family, Mask]:
    table = ledger.fixed.table
    found: dict[Family, Mask] = {}
    for rule in STATIC_RULES:
        allowed = None if rule.FAMILY is None else rule.mask(table, pod)
        if rule.FAMILY is not None and allowed is not None and not allowed.all():
            found[rule.FAMILY] = ~allowed
    return found


def _missing(ledger: Ledger, pod: Pod) -> str:
    """What the pods need and does not exist. A rule that refuses every empty node does not count here."""
    found = dead_end([rule for rule in ledger.rules if rule.dead_end_reason == "DependencyMissing"], (pod,))
    return "" if found is None else found.message


def device_families(ledger: Ledger, classes: list[AskClass]) -> list[tuple[Family, int]]:
    """(family, position of the rule in the ledger) of the stateful rules that concern the ask."""
    found: list[tuple[Family, int]] = []
    for i, rule in enumerate(ledger.rules):
        family = rule.family
        concerned = any(rule.concerns(item.example) for item in classes)
        if family == "pdb" or (family is not None and concerned):
            found.append((family, i))
    return found
