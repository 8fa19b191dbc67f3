"""The choice of the joint model's encoding: levels where they are exact, else nodes."""

from __future__ import annotations

from collections.abc import Sequence

from kai_cp_models.joint.exact import ExactModel
from kai_cp_models.joint.level import LevelModel
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.joint.problem import Ask, EvictionUnit
from kai_cp_models.ledger import Ledger


def joint_model(
    ledger: Ledger, asks: Sequence[Ask], units: Sequence[EvictionUnit] = (), *, may_lose: bool = True
) -> JointModel:
    """The smallest exact encoding of the problem; raises ``ModelTooLarge`` when none is small enough."""
    try:
        return LevelModel(ledger, asks, units, may_lose=may_lose)
    except ModelTooLarge:
        pass
    return ExactModel(ledger, asks, units, may_lose=may_lose)
