"""The names of objects and the labels that the API server accepts."""

from __future__ import annotations

import re
from typing import Final

LONGEST_NAME: Final = 253
"""The most letters of an object's name."""
LONGEST_LABEL: Final = 63
"""The most letters of a label's value, and of its key without the prefix."""
LONGEST_KEY: Final = LONGEST_NAME + 1 + LONGEST_LABEL
"""The most letters of a label's key, such as a level of a topology."""
LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""One part of an object's name."""
SUBDOMAIN: Final = re.compile(rf"{LABEL}(\.{LABEL})*")
"""An object's name."""
