"""Quantities of raw objects: integers rounded up as Kubernetes' ``Value`` and ``MilliValue`` do, or exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kai_cp.reader.fields import Malformed, shown
from kai_cp_models.quantity import exact, scaled


def quantity(value: Any, field: str, *, milli: bool = False) -> int:
    """A quantity from JSON (string or number), in units or thousandths.

    Anything else, and a negative quantity, is ``Malformed``.
    """
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


def exact_quantity(value: Any, field: str) -> Fraction:
    """The exact value of a quantity from JSON (string or integer), of any size.

    Anything else is ``Malformed``.
    """
    if type(value) is not int and not isinstance(value, str):
        raise Malformed(field, f"{shown(value)} is not a quantity")
    try:
        return exact(str(value))
    except ValueError as problem:
        raise Malformed(field, str(problem)) from None
