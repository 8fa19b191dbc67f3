"""Names for parsed JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""A JSON object that is only read."""
Object = dict[str, Any]
"""A JSON object that may be made or changed here, such as one for the API server."""
Document = Mapping[str, Any]
"""What a command prints with ``--format json``; its fields are in docs/reference-json.md."""


def short_hash(value: object) -> str:
    """A word that names a value of JSON, such as a configuration, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def plain_number(value: float) -> float | int:
    """A number as documents write it: an integer if it is whole, else with at most six digits."""
    return int(value) if value == int(value) else round(value, 6)
