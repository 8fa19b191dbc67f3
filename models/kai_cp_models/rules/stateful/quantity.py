"""Kubernetes quantities and versions as exact values, for devices, volumes and zones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final

_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)}
_SMALL: Final = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
_SUFFIX: Final[dict[str, Fraction]] = {
    **_SMALL,
    **{name: Fraction(value) for name, value in (_BINARY | _DECIMAL).items()},
}
_LARGEST_EXPONENT: Final = 30
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkKMGTPE]i?)?)")
_SEMVER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


@lru_cache(maxsize=4096)
def quantity(text: object) -> Fraction:
    """The value of a quantity such as ``80Gi``, ``500m``, ``1e3`` or 4; ValueError if it is none."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None or (found[3] or "") not in _SUFFIX or abs(int(found[2] or 0)) > _LARGEST_EXPONENT:
        raise ValueError(f"not a quantity: {text!r}")
    return Fraction(found[1]) * (Fraction(10) ** int(found[2] or 0)) * _SUFFIX[found[3] or ""]


def text(value: Fraction) -> str:
    """A quantity with this value, the shortest of whole numbers and milli-units."""
    if value.denominator == 1:
        for suffix, factor in reversed(_BINARY.items()):
            if value and value.numerator % factor == 0:
                return f"{value.numerator // factor}{suffix}"
        return str(value.numerator)
    return f"{-(-value.numerator * 1000 // value.denominator)}m"


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; build metadata does not count, a pre-release comes before its release."""

    numbers: tuple[int, int, int]
    pre: tuple[tuple[int, int, str], ...] = ()

    def __lt__(self, other: Version) -> bool:
        return (self.numbers, not self.pre, self.pre) < (other.numbers, not other.pre, other.pre)


def version(written: str) -> Version:
    """Parse a semantic version; ValueError if it is none."""
    found = _SEMVER.fullmatch(written)
    if found is None:
        raise ValueError(f"not a semantic version: {written!r}")
    parts = found[4].split(".") if found[4] else []
    pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return Version((int(found[1]), int(found[2]), int(found[3])), pre)
