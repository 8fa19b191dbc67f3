"""Instants and durations."""

from __future__ import annotations

import pytest

from kai_cp.reader.fields import Malformed
from kai_cp.reader.times import duration, go_duration, instant, prometheus_duration
from tests.kai_cp.reader.raw import NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T12:00:00Z", NOW),
        ("2026-11-20t12:00:00z", NOW),
        ("2026-11-20T13:30:00+01:30", NOW),
        ("2026-11-20T12:00:00.5Z", NOW + 0.5),
        ("2026-11-20T12:00:00.123456789Z", NOW + 0.123456),
        ("1970-01-01T00:00:00Z", 0.0),
        ("0001-01-01T00:00:00Z", -62_135_596_800.0),
    ],
)
def test_instants(text: str, seconds: float) -> None:
    assert instant(text, "f") == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "now",
        "1",
        "2026-11-20",
        "2026-11-20T12:00:00",
        "2026-13-20T12:00:00Z",
        "2026-11-20T12:00:00+25:00",
        "2026-11-20T24:00:00Z ",
        "0000-01-01T00:00:00Z",
        "99999-01-01T00:00:00Z",
    ],
)
def test_no_instants(text: str) -> None:
    with pytest.raises(Malformed, match=r"f: .* is not an RFC 3339 time"):
        instant(text, "f")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("5m0s", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("-10s", -10.0),
        ("+10s", 10.0),
        ("250ms", 0.25),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("1h1h", 7200.0),
    ],
)
def test_go_durations(text: str, seconds: float) -> None:
    assert go_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "1w", "5 m", "1h-2m", "s1", "9999999999h", "nan"])
def test_no_go_durations(text: str) -> None:
    with pytest.raises(Malformed, match="is not a duration"):
        duration(text, "f")


def test_a_duration_of_a_tenant_fills_no_memory() -> None:
    """Four thousand texts are remembered, and each was as long as an object may be."""
    before = go_duration.cache_info().currsize
    with pytest.raises(Malformed, match="is not a duration"):
        duration("0h" * 600_000, "f")
    assert go_duration.cache_info().currsize == before


def test_min_runtimes_know_days_and_weeks() -> None:
    assert duration("1w2d", "f", days=True) == 9 * 86_400


@pytest.mark.parametrize(
    ("text", "seconds"), [("1w", 604_800), ("1d12h", 129_600), ("1y", 31_536_000), ("5ms", 0.005)]
)
def test_prometheus_durations(text: str, seconds: float) -> None:
    assert prometheus_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "1h1d", "w", "-1w", "1.5h"])
def test_no_prometheus_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Prometheus duration"):
        prometheus_duration(text)
