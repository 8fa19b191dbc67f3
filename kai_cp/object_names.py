"""What the API server accepts as names of objects and as labels."""

from __future__ import annotations

import re
from typing import Final

LONGEST_NAME: Final = 253
"""Letters of an object's name at most."""
LONGEST_LABEL: Final = 63
"""Letters of a label's value at most, and of the part of its key that is not a prefix."""
LONGEST_KEY: Final = LONGEST_NAME + 1 + LONGEST_LABEL
"""Letters of a label's key at most, such as a level of a topology."""
LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""One part of an object's name."""
SUBDOMAIN: Final = re.compile(rf"{LABEL}(\.{LABEL})*")
"""An object's name."""
