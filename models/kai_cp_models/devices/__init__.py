"""Node rules with a memory: host ports, affinity, claimed devices, NUMA zones, volumes, budgets.

``RULES`` is the one list of them. A snapshot that has nothing for a rule does not pay for it.
"""

from __future__ import annotations

from typing import Final

from kai_cp_models.devices.protocol import DeviceRule, Mask, Row, RuleState, Scores
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

__all__ = ["RULES", "DeviceRule", "Mask", "Row", "RuleState", "Scores", "open_rules", "set_aside"]

RULES: Final[tuple[DeviceRule, ...]] = ()


def open_rules(
    snapshot: Snapshot, options: OptionalRules = OptionalRules()
) -> tuple[tuple[DeviceRule, RuleState], ...]:
    """The active rules with their states, in the order of ``RULES``."""
    return tuple((rule, rule.open(snapshot)) for rule in RULES if rule.active(snapshot, options))


def set_aside(snapshot: Snapshot, options: OptionalRules = OptionalRules()) -> tuple[SetAside, ...]:
    """Objects that active rules could not use, in the order of ``RULES``."""
    return tuple(
        item for rule in RULES if rule.active(snapshot, options) for item in rule.set_aside(snapshot)
    )
