"""Names for parsed JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""A JSON object that is only read."""
Object = dict[str, Any]
"""A JSON object that is made or changed here, such as one for the API server."""
Document = Mapping[str, Any]
"""What a command prints with ``--format json``; its fields are in docs/reference-json.md."""


def plain_number(value: float) -> float | int:
    """A number as documents write it: an integer if it is whole, else with at most six digits."""
    return int(value) if value == int(value) else round(value, 6)
