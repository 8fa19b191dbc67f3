"""The independent checker: is a plan allowed, said in plain Python.

It shares the snapshot records with the engine and nothing else, so that an error in the engine is not
repeated here. Every subject is a module with ``broken(world)``, which names rule, object and numbers.
"""

from __future__ import annotations

from kai_cp_models.check.audit import violations
from kai_cp_models.check.start import Start
from kai_cp_models.check.waste import waste
from kai_cp_models.check.world import World

__all__ = ["Start", "World", "violations", "waste"]
