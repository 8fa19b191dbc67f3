"""Values, amounts, instants and spans in messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final

from kai_cp_models.pods import MILLI, GpuRequest, in_bytes, in_thousandths

_LONGEST: Final = 80
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
"""Units of time, in seconds."""
_MIB: Final = 2**20
_GIB: Final = 2**30
_LATEST: Final = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that a calendar has."""


def shown(value: object) -> str:
    """A value as short JSON; the name of its type if it is not JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value).__name__)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``3 pods``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment(instant: float) -> datetime:
    """Seconds since the epoch as a date (UTC); later instants than a calendar has are its last one."""
    return datetime.fromtimestamp(min(instant, _LATEST), UTC)


def clock(instant: float, now: float) -> str:
    """``12:30`` today (UTC), with the day on other days."""
    when, today = moment(instant), moment(now)
    text = when.strftime("%H:%M:%S" if when.second else "%H:%M")
    return text if when.date() == today.date() else f"{when:%Y-%m-%d} {text}"


def span(seconds: float, units: int = 4) -> str:
    """``1d2h``, ``1h30m``, ``45s``: a duration in whole seconds, told in its largest ``units`` units."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")  # A unit in between counts, too: 1h of 1h0m7s.
    return "".join(parts[:units]) or "0s"


def amount(name: str, value: int) -> str:
    """An entry of a resource vector for people: cores, devices, plain counts; of bytes GiB or MiB.

    ``name``: of the dimension.
    """
    number = value / MILLI if in_thousandths(name) else value
    if in_bytes(name):
        scale, unit = (_MIB, "MiB") if 0 < number < _GIB else (_GIB, "GiB")
        number /= scale
        return f"{number:.0f} {unit}" if number >= MILLI else f"{number:.4g} {unit}"
    return f"{number:.10g}"


def quantity(name: str, value: int) -> str:
    """An amount with its unit: ``8 GPUs``, ``1 CPU``, ``1 pod slot``, ``2 example.com/nic``."""
    said = {"cpu": "CPU", "gpu": "GPU", "pods": "pod slot"}.get(name, name)
    if said != name and value != (1 if name == "pods" else MILLI):
        said += "s"
    return f"{amount(name, value)} {said}"


def share(gpu: GpuRequest) -> str:
    """What a pod asks of GPUs that it shares: ``0.5 of a GPU``, ``2000 MiB of each of 2 GPUs``."""
    need = f"{gpu.memory_mib} MiB" if gpu.memory_mib else f"{gpu.milli_portion / MILLI:g}"
    return f"{need} of a GPU" if gpu.devices == 1 else f"{need} of each of {gpu.devices} GPUs"
