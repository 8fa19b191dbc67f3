"""Kubernetes quantities as integers, rounded up as Kubernetes' ``Value`` and ``MilliValue`` do."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from kai_cp.reader.fields import Malformed, shown

_SUFFIX: Final = {
    **{suffix: (2, 10 * (i + 1)) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{suffix: (10, 3 * i) for i, suffix in enumerate("num", start=-3)},
    **{suffix: (10, 3 * i) for i, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
}
_QUANTITY: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d{1,6})", re.ASCII)
_LONGEST = 64
_SMALLEST_EXPONENT = -60

LARGEST: Final = 2**53
"""Largest amount that is taken: beyond it sums over a cluster would leave 64 bits."""


@lru_cache(maxsize=65536)
def scaled(text: str, thousands: int) -> int:
    """``text`` times 1000 ** ``thousands``, rounded up to an integer; ValueError says what is wrong."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{shown(text)} is not a quantity")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    base, exponent = _SUFFIX[suffix] if suffix in _SUFFIX else (10, int(suffix[1:]))
    digits = int((whole + fraction) or "0")
    tens = 3 * thousands - len(fraction)
    twos = exponent if base == 2 else 0
    tens += exponent if base == 10 else 0
    if digits == 0:
        return 0
    if tens > _LONGEST or twos > _LONGEST:
        raise ValueError(f"{shown(text)} is too large")
    value: int = digits << twos
    if tens >= 0:
        value *= 10**tens
    else:
        value = -(-value // 10 ** -max(tens, 2 * _SMALLEST_EXPONENT))
    if value > LARGEST:
        raise ValueError(f"{shown(text)} is too large")
    return -value if sign == "-" else value


def quantity(value: Any, field: str, *, milli: bool = False) -> int:
    """A quantity from JSON (string or number), in units or thousandths; it may not be negative."""
    if type(value) in (int, float):
        value = repr(value)
    if not isinstance(value, str):
        raise Malformed(field, f"{shown(value)} is not a quantity")
    try:
        amount = scaled(value, 1 if milli else 0)
    except ValueError as problem:
        raise Malformed(field, str(problem)) from None
    if amount < 0:
        raise Malformed(field, f"{shown(value)} is negative")
    return amount
