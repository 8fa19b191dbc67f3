"""``kai-cp gpu-reservation``: runs in a reservation pod, finds the pod's GPU and writes it down (9.3)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from kai_cp import keys
from kai_cp.kube.api import resources
from kai_cp.kube.serving.process import Connection, Lifecycle, connect

LOG = logging.getLogger(__name__)
FAKE_VARIABLE: Final = "KAI_CP_FAKE_GPU_UUID"
"""Stands in for the device where there is no driver: tests and demonstrations."""


class NoDevice(Exception):
    """The pod sees no GPU, or more than one."""


def device_uuid() -> str:
    """UUID of the one GPU that this container sees, from NVML.

    Raises ``NoDevice`` if it does not see exactly one.
    """
    fake = os.environ.get(FAKE_VARIABLE)
    if fake:
        return fake
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            if count != 1:
                raise NoDevice(f"this container sees {count} GPUs; a reservation is for one")
            uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
            return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise NoDevice(f"NVML does not name the GPU: {error}") from error


def run(
    connection: Connection,
    life: Lifecycle,
    namespace: str,
    pod: str,
    find: Callable[[], str] = device_uuid,
) -> int:
    """Write the device to the pod's annotation, then hold the GPU until the process is told to end."""
    uuid = find()
    transport = connect(connection, "gpu-reservation", life)
    annotation = {"metadata": {"annotations": {keys.RESERVED_DEVICE: uuid}}}
    if transport.patch(resources.PODS, namespace, pod, annotation) is None:
        LOG.error(
            "the pod of this process does not exist, so no GPU is reserved and the process ends",
            extra={"pod": f"{namespace}/{pod}"},
        )
        return 1
    LOG.info("device reserved", extra={"device": uuid})
    life.event.wait()
    transport.close()
    return life.status
