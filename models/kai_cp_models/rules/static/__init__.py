"""Static node rules: whether a pod's spec and a node fit each other, whatever else runs (7).

``STATIC_RULES`` is the only list of them. Each rule is stated twice: ``mask`` over all nodes for the solver,
and ``broken`` for one pod and one node in plain Python for the checker and for explanations. To add a rule:
write its module, name it here, test both statements with one table.
"""

from __future__ import annotations

from typing import Final

from kai_cp_models.rules.static import conditions, gpu_kind, selector, size, taints, workers
from kai_cp_models.rules.static.protocol import StaticRule

STATIC_RULES: Final[tuple[StaticRule, ...]] = (size, gpu_kind, conditions, taints, selector, workers)
"""In the order in which a refusal is named."""
