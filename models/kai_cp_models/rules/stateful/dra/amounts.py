"""GPUs that the queues charge for the resource claims of a pod (2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kai_cp_models.pods import MILLI, Pod, PodKey
from kai_cp_models.records.devices import ALL, Claim
from kai_cp_models.snapshot import Snapshot

GPU_MARK: Final = "gpu"
"""A class or driver whose name contains this, in any case, hands out GPUs."""


def is_gpu(name: str) -> bool:
    """Whether a device class or driver hands out GPUs, by its name."""
    return GPU_MARK in name.lower()


def gpus_of(found: Claim) -> int:
    """GPUs that a claim asks for, as the queues count them.

    A request for *all* devices counts as 1, and a request with alternatives as 0.
    """
    return sum(
        1 if alternatives[0].mode == ALL else alternatives[0].count
        for alternatives in found.requests
        if "/" not in alternatives[0].name and is_gpu(alternatives[0].device_class)
    )


def claim_milli_gpus(snapshot: Snapshot, claims: Mapping[tuple[str, str], Claim]) -> dict[PodKey, int]:
    """Milli-GPUs that each pod's claims add to its request; pods without any are left out."""
    gpus = {key: gpus_of(found) for key, found in claims.items()}
    users = (pod for pod in snapshot.pods if pod.spec.claims)
    return {pod.key: total * MILLI for pod in users if (total := _total(pod, gpus))}


def _total(pod: Pod, gpus: dict[tuple[str, str], int]) -> int:
    names = dict.fromkeys(ref.claim for ref in pod.spec.claims if ref.claim)
    return sum(gpus.get((pod.key.namespace, name), 0) for name in names)
