"""What every stateful rule offers to the greedy ledger, to the joint model and to the checker.

A stateful rule is a node rule that depends on the pods already there: host ports, inter-pod affinity, claimed
devices, NUMA zones, volumes. Each rule is a module with the names of :class:`StatefulRule`; its accounting is
a :class:`RuleState`.

A state distinguishes three kinds of pods: pods that *stay*, pods placed in this cycle (``place``), and pods
that are *leaving* (already releasing, or ``evict``). Leaving pods count for ``now=True`` and not for
``now=False``. A moved pod is both: leaving its old node and placed on the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isfunction, signature
from typing import Any, ClassVar, NamedTuple, Protocol

from kai_cp_models.arrays import Floats, Mask
from kai_cp_models.blame import for_group
from kai_cp_models.fairness.amounts import NOTHING, Amounts
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.rules.stateful.forked import Forked
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot


@dataclass(frozen=True, slots=True)
class Row:
    """One linear row: sum(entering * count) + sum(chosen * choice) - sum(leaving * evicted) <= bound.

    ``entering``: coefficient by (class, node) of the pods of that class newly placed on the node;
    ``leaving``: coefficient by pod that holds a place, of the boolean "is evicted". ``bound`` counts all pods
    that hold a place as staying, and releasing pods as gone. ``chosen``: coefficient by name of 0/1 choices,
    which all rows of the rule share.
    """

    entering: Mapping[tuple[int, int], int]
    bound: int
    leaving: Mapping[PodKey, int] = field(default_factory=dict)
    name: str = ""
    chosen: Mapping[Hashable, int] = field(default_factory=dict)


class Lent(NamedTuple):
    """What quotas need not count for a batch because other pods give it back; ``words``: why it is not
    more."""

    by_queue: Mapping[str, Amounts]
    words: str = ""


class RuleState(Forked):
    """Accounting of one rule inside a ledger. The defaults are those of a rule that restricts nothing.

    Nodes are positions in ``Snapshot.nodes``. If ``concerns`` is False for a pod, the rule does not restrict
    the pod, and the pod restricts no others by the rule: no other method needs to be called for it.
    """

    def __init_subclass__(cls) -> None:
        """An error that a question about a pod raises is charged to the pod's group."""
        for name, method in list(vars(cls).items()):
            if isfunction(method) and name[0] != "_" and list(signature(method).parameters)[1:2] == ["pod"]:
                setattr(cls, name, for_group(lambda _, pod, *__, **___: pod.group)(method))

    name: ClassVar[str] = ""
    """The rule's ``NAME``."""
    family: ClassVar[str | None] = None
    """The family of rules that explanations name (``explain/families.py``); None: it is taken as given."""
    dead_end_reason: ClassVar[str] = "DependencyMissing"
    """The reason token of its dead ends: an object is missing, or no node suits the pod even if empty."""
    uses_up: ClassVar[bool] = False
    """Whether a pod that leaves may keep other pods from leaving."""
    of_one_node: ClassVar[bool] = False
    """Whether pods matter to each other only where they share a node."""

    def concerns(self, pod: Pod) -> bool:
        """Whether the pod matters to this rule at all."""
        raise NotImplementedError

    def identity(self, pod: Pod) -> Hashable:
        """What the rule distinguishes the pod by: pods of equal spec and identity are one class."""
        return None

    def mask(self, pod: Pod, *, now: bool) -> Mask | None:
        """[N] nodes that accept the pod; None: all. ``now``: leaving pods count as still there."""
        return None

    def opened_by(self, pod: Pod, other: Pod | None = None) -> bool:
        """Whether placing ``other`` later may open a node to the pod, so that a refusal may not last.
        ``other`` None: any pod; the spec alone tells."""
        return False

    def score(self, pod: Pod) -> Floats | None:
        """Extra score per node in the magnitudes of section 6; None: none."""
        return None

    def place(self, pod: Pod, node: int, *, pipelined: bool) -> None:
        """Account a placement that ``mask`` allows."""

    def details(self, pod: Pod, node: int) -> Mapping[str, Any]:
        """``Decision.details`` of a place of this cycle, as the state is now."""
        return {}

    def remove(self, pod: Pod, node: int) -> None:
        """Undo a ``place`` of this cycle."""

    def evict(self, pod: Pod) -> None:
        """Count a pod that held a place before the cycle as leaving."""

    def unevict(self, pod: Pod) -> None:
        """Undo an ``evict``."""

    def evictable(self, pod: Pod) -> bool:
        """Whether the rule lets a pod be evicted in the present state."""
        return True

    def upheld(self) -> bool:
        """Whether the places of this cycle still have what the rule asked for beside them."""
        return True

    def refusals(self, pod: Pod) -> str:
        """Why nodes are refused, in words with numbers; "" when the rule refuses none."""
        return ""

    @property
    def gave_up(self) -> bool:
        """Whether the rule has refused something after an incomplete search; such a refusal proves
        nothing."""
        return False

    def unsure(self, pod: Pod) -> bool:
        """Whether the rule refuses the pod because it cannot evaluate something; such a refusal proves
        nothing."""
        return False

    def alone(self, pods: Sequence[Pod], accepting: Callable[[Pod], Mask]) -> tuple[str, str] | None:
        """(reason token, message) if this rule alone keeps the pods from starting together; else None.

        ``accepting``: the nodes [N] to which the static rules let a pod go.
        """
        return None

    def lent(self, pods: Sequence[Pod], asked: Amounts, *, beside: Amounts = NOTHING) -> Lent | None:
        """What the quotas of queues lend to a batch that asks for ``asked``; None: the rule does not apply
        (3.8).

        ``beside``: in each workload, at most this much gets a place before the batch.
        """
        return None

    def dead_end(self, pod: Pod) -> str:
        """Why no eviction can ever help the pod (4.3); "" when one might."""
        return ""

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rule for ``classes`` (one pod of each; ``sizes`` pods exist) as rows over ``nodes``.

        Every placement that the rule allows satisfies the rows. A rule whose rows allow more says so in its
        docstring; ``mask`` and ``place`` then decide when counts are turned into places.
        """
        return ()


class LeavingState(RuleState):
    """A state that knows which pods the cycle has evicted; subclasses define the effect in ``_leave``."""

    def __init__(self) -> None:
        self.left: set[PodKey] = set()
        """Pods that held a place before the cycle and are evicted in it."""

    def detach(self) -> None:
        self.left = set(self.left)

    def evict(self, pod: Pod) -> None:
        self._leave(pod, 1)
        self.left.add(pod.key)

    def unevict(self, pod: Pod) -> None:
        self._leave(pod, -1)
        self.left.discard(pod.key)

    def _leave(self, pod: Pod, sign: int) -> None:
        """Count the pod as leaving (1) or as staying again (-1); ``left`` is not changed yet."""


class StatefulRule(Protocol):
    """A module of this package."""

    NAME: str

    def active(self, snapshot: Snapshot, options: OptionalRules) -> bool:
        """Whether the snapshot has anything for this rule; it must be cheap."""

    def open(self, snapshot: Snapshot) -> RuleState:
        """Parsed tables and the accounting of the pods that hold a place."""

    def set_aside(self, snapshot: Snapshot) -> Iterator[SetAside]:
        """Objects of this rule that could not be used, and why."""
