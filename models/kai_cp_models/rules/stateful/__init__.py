"""Rules with a memory: host ports, affinity, claimed devices, NUMA zones, volumes, budgets, kinds, rollouts.

``RULES`` is the one list of them. A rule without objects in the snapshot costs no time.
"""

from __future__ import annotations

from typing import Final

from kai_cp_models.reservations import held
from kai_cp_models.rules.stateful import (
    affinity,
    budgets,
    dra,
    enrich,
    gpu_kinds,
    numa,
    ports,
    references,
    rollouts,
    spread,
    storage,
)
from kai_cp_models.rules.stateful.protocol import Row, RuleState, StatefulRule
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

__all__ = [
    "RULES",
    "Row",
    "RuleState",
    "StatefulRule",
    "enriched",
    "open_rules",
    "set_aside",
]

RULES: Final[tuple[StatefulRule, ...]] = (
    references,
    ports,
    affinity,
    dra,
    numa,
    storage,
    spread,
    budgets,
    gpu_kinds,
    rollouts,
    held,
)


def open_rules(snapshot: Snapshot, options: OptionalRules | None = None) -> tuple[RuleState, ...]:
    """The states of the active rules, in the order of ``RULES``."""
    return tuple(rule.open(snapshot) for rule in _active(snapshot, options))


def set_aside(snapshot: Snapshot, options: OptionalRules | None = None) -> tuple[SetAside, ...]:
    """Objects that active rules skipped because they could not be used, in the order of ``RULES``."""
    return tuple(item for rule in _active(snapshot, options) for item in rule.set_aside(snapshot))


def enriched(snapshot: Snapshot) -> Snapshot:
    """The snapshot as all rules read it, with what device objects add; see :mod:`.enrich`."""
    parsed = enrich.with_catalog(snapshot)
    return enrich.enriched(parsed, set_aside(parsed))


def _active(snapshot: Snapshot, options: OptionalRules | None) -> tuple[StatefulRule, ...]:
    chosen = OptionalRules() if options is None else options
    return tuple(rule for rule in RULES if rule.active(snapshot, chosen))
