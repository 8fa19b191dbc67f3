"""Names of MIG instances as extended resources; a module without other imports, because texts need no
engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MIG_PREFIX: Final = "nvidia.com/mig-"


def instances(counts: Mapping[str, int]) -> str:
    """Instances by resource name in words, such as ``7 × 1g.10gb``."""
    found = (f"{count} × {name.removeprefix(MIG_PREFIX)}" for name, count in sorted(counts.items()))
    return ", ".join(found) or "none"
