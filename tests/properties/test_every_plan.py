"""No plan of a tiny world that the checker permits serves a group that the engine proved to be impossible.

``KAI_CP_PLAN_WORLDS`` asks in that many worlds.
"""

from __future__ import annotations

import os
from typing import Final

from tests.properties.every_plan import refuted

WORLDS: Final = int(os.environ.get("KAI_CP_PLAN_WORLDS", "24"))


def test_no_permitted_plan_serves_a_group_that_is_called_impossible() -> None:
    proofs = 0
    for seed in range(WORLDS):
        faults, proved, _ = refuted(seed)
        assert faults == [], seed
        proofs += proved
    assert proofs > WORLDS / 6
