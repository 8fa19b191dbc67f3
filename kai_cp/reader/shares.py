"""A pod's GPU request: whole devices, a portion, an amount of memory, or MIG instances (2.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from kai_cp.keys import FRACTION_DEVICES, GPU_FRACTION, GPU_GROUP, GPU_MEMORY
from kai_cp.reader.fields import Malformed, entry, shown
from kai_cp.reader.resources import ResourceAmounts
from kai_cp_models.migs import MIG_PREFIX
from kai_cp_models.pods import MILLI, GpuKind, GpuRequest

_NUMBER: Final = re.compile(r"[+-]?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d{1,15}", re.ASCII)
_MOST_DEVICES = 1024


def read_gpu(annotations: Mapping[str, str], amounts: ResourceAmounts) -> GpuRequest:
    """The GPU request. For a share, the whole GPUs that containers request are removed from ``amounts``.

    The memory annotation is read first and a portion overrides it, as in KAI.
    """
    shared = _share(annotations)
    if shared is not None:
        amounts.pop("gpu", None)
        return shared
    devices = amounts.get("gpu", 0) // MILLI
    if any(name.startswith(MIG_PREFIX) for name in amounts):
        return GpuRequest(GpuKind.MIG, devices)
    return GpuRequest(GpuKind.REGULAR, devices)


def _share(annotations: Mapping[str, str]) -> GpuRequest | None:
    found: GpuRequest | None = None
    if GPU_MEMORY in annotations:
        mib = _whole(annotations, GPU_MEMORY, 0)
        # "0" requests nothing.
        found = GpuRequest(GpuKind.MEMORY, 1, 0, mib) if mib else None
    if GPU_FRACTION in annotations:
        found = GpuRequest(GpuKind.FRACTION, 1, _milli_portion(annotations[GPU_FRACTION]))
    if found is None or FRACTION_DEVICES not in annotations:
        return found
    devices = _whole(annotations, FRACTION_DEVICES, 1)
    if devices > _MOST_DEVICES:
        raise Malformed(_field(FRACTION_DEVICES), f"{devices} is more than {_MOST_DEVICES}")
    return GpuRequest(found.kind, devices, found.milli_portion, found.memory_mib)


def _field(name: str) -> str:
    return entry("metadata.annotations", name)


def _whole(annotations: Mapping[str, str], name: str, minimum: int) -> int:
    text = annotations[name]
    if not _WHOLE.fullmatch(text):
        raise Malformed(_field(name), f"{shown(text)} is not a whole number")
    if int(text) < minimum:
        raise Malformed(_field(name), f"{shown(text)} is below {minimum}")
    return int(text)


def _milli_portion(text: str) -> int:
    """The portion in thousandths, rounded to hundredths of a device as KAI charges it (2.2)."""
    if not _NUMBER.fullmatch(text):
        raise Malformed(_field(GPU_FRACTION), f"{shown(text)} is not a number")
    portion = float(text)
    if not 0 < portion <= 1:
        raise Malformed(_field(GPU_FRACTION), f"{shown(text)} is not above 0 and at most 1")
    hundredths = math.floor(portion * 100 + 0.5)
    if hundredths == 0:
        raise Malformed(_field(GPU_FRACTION), f"{shown(text)} is below a hundredth of a GPU")
    return hundredths * 10


def group_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The shared-GPU groups in the labels of a placed pod, one per device (1.7)."""
    several = sorted(
        value or key[len(GPU_GROUP) + 1 :]
        for key, value in labels.items()
        if key.startswith(GPU_GROUP) and key[len(GPU_GROUP) :].startswith("/")
    )
    if several:
        return tuple(several)
    only = labels.get(GPU_GROUP)
    return (only,) if only else ()
