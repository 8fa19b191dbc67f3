"""Values in messages."""

from __future__ import annotations

import json
from typing import Final

_LONGEST: Final = 80


def shown(value: object) -> str:
    """A value as short JSON; the name of its type where it is none."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value).__name__)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
