"""Instants and durations: RFC 3339, Go's ``time.Duration`` strings, and Prometheus durations."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from kai_cp.json_types import Json
from kai_cp.reader.fields import Malformed, shown, text_at

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_GO_PART: Final = re.compile(r"(\d{1,19}(?:\.\d{0,19})?|\.\d{1,19})(ns|us|µs|μs|ms|s|m|h|d|w)", re.ASCII)
_PROMETHEUS: Final = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII
)
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_LONGEST_SECONDS: Final = 2**63 / 1e9
_LONGEST: Final = 100
"""The most characters of a duration. Texts are remembered, and a tenant may write a megabyte of `0h0h…`."""


@lru_cache(maxsize=65536)
def seconds_of(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 instant. Raises ``ValueError`` for other text."""
    if not _RFC3339.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper()).timestamp()


def instant(text: str, field: str) -> float:
    """An RFC 3339 instant in seconds since the epoch. Raises ``Malformed`` for anything else."""
    try:
        return seconds_of(text)
    except (ValueError, OverflowError):
        raise Malformed(field, f"{shown(text)} is not an RFC 3339 time") from None


def instant_at(holder: Json, key: str, where: str = "") -> float | None:
    """The RFC 3339 instant under ``key`` in seconds since the epoch; None if absent."""
    return optional_instant(text_at(holder, key, where), f"{where}.{key}" if where else key)


def optional_instant(text: str | None, field: str) -> float | None:
    """An RFC 3339 instant in seconds since the epoch; None if there is no text."""
    return instant(text, field) if text else None


@lru_cache(maxsize=4096)
def go_duration(text: str, *, days: bool = False) -> float:
    """A Go duration (``1h30m``) in seconds; ``days`` also accepts the units ``d`` and ``w``.

    Raises ``ValueError`` for other text.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]}…")
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0.0
    total = 0.0
    position = 0
    while position < len(body):
        part = _GO_PART.match(body, position)
        if part is None or (part[2] in "dw" and not days):
            raise ValueError(text)
        total += float(part[1]) * _SECONDS[part[2]]
        position = part.end()
    if not body or total > _LONGEST_SECONDS:
        raise ValueError(text)
    return -total if text[0] == "-" else total


def duration_at(holder: Json, key: str, where: str = "") -> float | None:
    """The Go duration under ``key`` in seconds; None if absent."""
    text = text_at(holder, key, where)
    return duration(text, f"{where}.{key}" if where else key) if text else None


def duration(text: str, field: str, *, days: bool = False) -> float:
    """A Go duration in seconds. Raises ``Malformed`` for anything else."""
    try:
        return go_duration(text, days=days)
    except ValueError:
        raise Malformed(field, f"{shown(text)} is not a duration") from None


@lru_cache(maxsize=256)
def prometheus_duration(text: str) -> float:
    """A Prometheus duration (``1w``, ``1d12h``) in seconds. Raises ``ValueError`` for other text."""
    match = _PROMETHEUS.fullmatch(text) if len(text) <= 64 else None
    if match is None or not any(match.groups()):
        raise ValueError(f"{shown(text)} is not a Prometheus duration")
    units = (31_536_000, 604_800, 86_400, 3600, 60, 1, 0.001)
    return sum(int(count) * unit for count, unit in zip(match.groups(), units, strict=True) if count)
