"""The actions, and what a scheduler's configuration and parameters say (1.5, 11.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal, get_args

from kai_cp_models.pods import UNLIMITED

EvictionAction = Literal["consolidation", "reclaim", "preempt"]
StateAction = Literal["stalegangeviction"]
PolicyAction = Literal["allocate", EvictionAction, StateAction]
TimeAction = Literal["maxruntime", "reservation", "defrag"]
ActionName = Literal[PolicyAction, TimeAction]
POLICY_ACTIONS: Final[tuple[PolicyAction, ...]] = get_args(PolicyAction)
"""Actions that a policy may name, in the order in which they run unless it says otherwise."""
EVICTION_ACTIONS: Final[tuple[EvictionAction, ...]] = get_args(EvictionAction)
"""Actions that evict or move pods for a waiting pod group (4.3)."""
STATE_ACTIONS: Final[frozenset[ActionName]] = frozenset(get_args(StateAction))
"""Actions that evict a pod group for its own state; no decision for another pod group relies on it."""
KAI_ACTIONS: Final[tuple[PolicyAction, ...]] = ("allocate", *EVICTION_ACTIONS, "stalegangeviction")
"""KAI's actions, in KAI's order: what runs where no policy is given."""
TIME_ACTIONS: Final[frozenset[ActionName]] = frozenset(get_args(TimeAction))
"""Actions of the time axis. No policy names them; settings switch them on."""
DECISION_ORDER: Final[tuple[ActionName, ...]] = (
    "maxruntime",
    "stalegangeviction",
    "reservation",
    "allocate",
    "consolidation",
    "reclaim",
    "preempt",
    "defrag",
)
"""In this order the decisions of a plan are named; see ``Policy.decision_order``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the snapshot's ``config`` and ``schedulerParams`` say (1.5, 11.1)."""

    actions: tuple[ActionName, ...] = KAI_ACTIONS
    plugins: frozenset[str] = frozenset()
    """Names of the active plugins; a missing one switches its rules or scores off."""
    gpu_strategy: Literal["binpack", "spread"] = "binpack"
    cpu_strategy: Literal["binpack", "spread"] = "binpack"
    k_value: float = 1.0
    saturation_multiplier: float = 1.0
    default_preempt_min_runtime_seconds: float = 0.0
    default_reclaim_min_runtime_seconds: float = 0.0
    reclaim_resolve_method: Literal["lca", "queue"] = "lca"
    max_consolidation_preemptees: int = 16
    restrict_node_scheduling: bool = False
    gpu_worker_label: str = "node-role.kubernetes.io/gpu-worker"
    cpu_worker_label: str = "node-role.kubernetes.io/cpu-worker"
    allow_consolidating_reclaim: bool = True
    full_hierarchy_fairness: bool = True
    default_staleness_grace_seconds: float = 60.0
    schedule_csi_storage: bool = False
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    """Pod groups of each leaf queue that an action looks at, 0 for none; all for an action not named."""
    scheduler_name: str = "kai-scheduler"
    node_pool_label: str = ""
    node_pool: str = ""
    queue_label: str = "kai.scheduler/queue"
    numa_ignore: frozenset[str] = frozenset()
    numa_reconstruct: bool = True
    reservation_namespace: str = "kai-resource-reservation"
    reservation_app: str = "kai-resource-reservation"
    """A GPU reservation pod has this label ``app`` *and* lives there: every user may write a label (1.7)."""
    scaling_namespace: str = "kai-scale-adjust"
    """Likewise of scaling pods, whose label ``app`` is ``scaling-pod``."""

    def plugin(self, name: str) -> bool:
        """Whether the plugin ``name`` is active."""
        return name in self.plugins

    @property
    def decision_order(self) -> tuple[ActionName, ...]:
        """``DECISION_ORDER`` with the actions that build on each other in the order in which they run.

        Planned starts begin allocate.
        """
        run = dict.fromkeys(name for name in self.actions if name not in STATE_ACTIONS)
        in_turn = iter(run)
        found = [next(in_turn) if name in run else name for name in DECISION_ORDER if name != "reservation"]
        found.insert(found.index("allocate"), "reservation")
        return tuple(found)

    @property
    def consolidates(self) -> bool:
        """Whether consolidation may move pods; in spread mode it does not (1.5)."""
        return self.max_consolidation_preemptees != 0 and not self.spreads

    @property
    def spreads(self) -> bool:
        """Whether pods of a kind are spread: what is moved together goes apart again."""
        return "spread" in (self.gpu_strategy, self.cpu_strategy)

    @property
    def most_moved_groups(self) -> float:
        """Pod groups that consolidation may move for one trigger (4.3); infinite where no limit is set."""
        return inf if (most := self.max_consolidation_preemptees) == UNLIMITED else most
