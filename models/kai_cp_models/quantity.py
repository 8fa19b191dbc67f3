"""Kubernetes quantities and versions: one grammar, read as exact values or as rounded integers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final, NamedTuple

from kai_cp_models.shown import shown

_BINARY: Final = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", start=1)}
"""Powers of two by suffix."""
_DECIMAL: Final = {letter: 3 * power for power, letter in enumerate(("n", "u", "m", "", *"kMGTPE"), start=-3)}
"""Powers of ten by suffix."""
_QUANTITY: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d{1,6})", re.ASCII)
_SEMVER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_LONGEST: Final = 64
"""Characters of a quantity, and the largest power of two or ten in one."""
_SMALLEST_EXPONENT: Final = -60

LARGEST: Final = 2**53
"""Largest amount that is accepted: sums of larger ones over a cluster would not fit into 64 bits."""


class _Parts(NamedTuple):
    """``digits`` times 2 ** ``twos`` times 10 ** ``tens``."""

    digits: int
    twos: int
    tens: int


def _parts(text: str) -> _Parts:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{shown(text)} is not a quantity")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    digits = int((whole + fraction) or "0")
    tens = _DECIMAL.get(suffix)
    if tens is None:
        tens = 0 if suffix in _BINARY else int(suffix[1:])
    return _Parts(-digits if sign == "-" else digits, _BINARY.get(suffix, 0), tens - len(fraction))


@lru_cache(maxsize=65536)
def scaled(text: str, thousands: int) -> int:
    """``text`` times 1000 ** ``thousands``, an integer rounded away from 0; ValueError says what is wrong."""
    digits, twos, tens = _parts(text)
    tens += 3 * thousands
    if digits == 0:
        return 0
    if tens > _LONGEST:
        raise ValueError(f"{shown(text)} is too large")
    value: int = abs(digits) << twos
    if tens >= 0:
        value *= 10**tens
    else:
        value = -(-value // 10 ** -max(tens, 2 * _SMALLEST_EXPONENT))
    if value > LARGEST:
        raise ValueError(f"{shown(text)} is too large")
    return -value if digits < 0 else value


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction:
    """The value of a quantity such as ``80Gi``, ``500m`` or ``1e3``; ValueError if it is none."""
    digits, twos, tens = _parts(text)
    if abs(tens) > _LONGEST:
        raise ValueError(f"{shown(text)} is too large or too small")
    return Fraction(digits << twos) * Fraction(10) ** tens


def text(value: Fraction) -> str:
    """A quantity with this value, the shortest of whole numbers and milli-units."""
    if value.denominator == 1:
        for suffix, twos in reversed(_BINARY.items()):
            if value and value.numerator % (1 << twos) == 0:
                return f"{value.numerator >> twos}{suffix}"
        return str(value.numerator)
    return f"{-(-value.numerator * 1000 // value.denominator)}m"


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; build metadata does not count, a pre-release comes before its release."""

    numbers: tuple[int, int, int]
    pre: tuple[tuple[int, int, str], ...] = ()
    written: str = field(default="", compare=False)

    def __lt__(self, other: Version) -> bool:
        return (self.numbers, not self.pre, self.pre) < (other.numbers, not other.pre, other.pre)


def version(written: str) -> Version:
    """Parse a semantic version; ValueError if it is none."""
    found = _SEMVER.fullmatch(written)
    if found is None:
        raise ValueError(f"not a semantic version: {written!r}")
    parts = found[4].split(".") if found[4] else []
    pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return Version((int(found[1]), int(found[2]), int(found[3])), pre, written)
