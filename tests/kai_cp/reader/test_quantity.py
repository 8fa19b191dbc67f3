"""Kubernetes quantities against their grammar."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_cp.reader.fields import Malformed
from kai_cp.reader.quantity import quantity


@pytest.mark.parametrize(
    ("text", "units", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("+1", 1, 1000),
        ("100m", 1, 100),
        ("1001m", 2, 1001),
        ("0.0005", 1, 1),
        ("1500u", 1, 2),
        ("1n", 1, 1),
        (".5", 1, 500),
        ("2.", 2, 2000),
        ("1.5Gi", 1536 * 2**20, 1536 * 2**20 * 1000),
        ("1Ki", 1024, 1_024_000),
        ("0.1Ki", 103, 102_400),
        ("20k", 20_000, 20_000_000),
        ("1G", 10**9, 10**12),
        ("1e3", 1000, 10**6),
        ("12E2", 1200, 1_200_000),
        ("1E-2", 1, 10),
        ("1e-999999", 1, 1),
        ("0e999999", 0, 0),
        (3, 3, 3000),
        (0.5, 1, 500),
    ],
)
def test_amounts_are_rounded_up(text: Any, units: int, milli: int) -> None:
    assert quantity(text, "f") == units
    assert quantity(text, "f", milli=True) == milli


@pytest.mark.parametrize(
    "value",
    [
        *("", "abc", "1 ", "1Gib", "1ki", "--1", "1e", "0x10", "1,5", ".", "-", "NaN", "inf", "१"),
        *("-1", "-1m", "1e400", "9Ei", "1E1E", "1" * 65),
        *(True, [], {}, None, float("nan"), float("inf")),
    ],
)
def test_everything_else_is_malformed(value: Any) -> None:
    with pytest.raises(Malformed) as caught:
        quantity(value, "spec.x")
    assert str(caught.value).startswith("spec.x: ")


@given(
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from(["", "m", "u", "n", "k", "M", "Ki", "Mi", "e2", "E-3"]),
)
def test_equals_the_exact_value_rounded_up(whole: int, thousandths: int, suffix: str) -> None:
    factor = {
        "": Fraction(1),
        "m": Fraction(1, 10**3),
        "u": Fraction(1, 10**6),
        "n": Fraction(1, 10**9),
        "k": Fraction(10**3),
        "M": Fraction(10**6),
        "Ki": Fraction(2**10),
        "Mi": Fraction(2**20),
        "e2": Fraction(100),
        "E-3": Fraction(1, 1000),
    }[suffix]
    exact = (whole + Fraction(thousandths, 1000)) * factor
    text = f"{whole}.{thousandths:03}{suffix}"
    assert quantity(text, "f") == math.ceil(exact)
    assert quantity(text, "f", milli=True) == math.ceil(exact * 1000)
