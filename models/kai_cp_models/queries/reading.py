"""What the rules add to a snapshot when it is read."""

from __future__ import annotations

from dataclasses import replace

from kai_cp_models.records.judging import JUDGING, Judging
from kai_cp_models.rules.stateful import enrich
from kai_cp_models.rules.stateful import enriched as with_rules
from kai_cp_models.snapshot import Snapshot


def completed(snapshot: Snapshot, judging: Judging) -> Snapshot:
    """The snapshot with the effects of its API objects on one another.

    Claims count as GPUs in queues, devices that DRA serves count in their nodes, and objects that no rule can
    use are skipped. ``judging``: what selectors may cost, and whether they are evaluated at all.
    """
    return with_rules(replace(snapshot, extras=snapshot.extras.having(JUDGING, judging)))


def claims_wait(snapshot: Snapshot) -> bool:
    """Whether claims wait for a later cycle because selectors used up the steps of this one."""
    return enrich.claims_wait(snapshot)
