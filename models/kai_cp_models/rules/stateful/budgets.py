"""PodDisruptionBudgets, an option that KAI lacks: when on, no eviction goes beyond a budget.

A budget allows what its status says. Without a status, the running pods that it selects are compared with
``minAvailable`` or ``maxUnavailable``. The Eviction API evicts no pod that two budgets select, whatever they
allow. Pods that do not run yet need no budget.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kai_cp_models.pods import Pod, PodKey, PodStatus
from kai_cp_models.records.budgets import BUDGETS, DisruptionBudget
from kai_cp_models.rules.stateful.protocol import LeavingState, Row, RuleState
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import SetAside, Snapshot

NAME: Final = "budgets"
_PERCENT: Final = 100


def active(snapshot: Snapshot, options: OptionalRules) -> bool:
    """Whether the option is on and there are budgets."""
    return options.pod_disruption_budgets and bool(snapshot.extras[BUDGETS])


def open(snapshot: Snapshot) -> RuleState:
    """Evictions that the budgets still allow."""
    return BudgetState(snapshot)


def set_aside(snapshot: Snapshot) -> Iterator[SetAside]:
    """None: the reader names objects that cannot be read."""
    yield from ()


def allowance(budget: DisruptionBudget, running: int, expected: int) -> int:
    """Evictions that a budget allows, of ``running`` pods where ``expected`` are wanted."""
    if budget.allowed is not None:
        return budget.allowed
    if budget.maximum is not None:
        return max(0, running - (expected - _pods(budget.maximum, expected)))
    return max(0, running - _pods(budget.minimum if budget.minimum is not None else 1, expected))


def _pods(bound: str | int, expected: int) -> int:
    if isinstance(bound, int):
        return bound
    return -(-int(bound[:-1]) * expected // _PERCENT)


class BudgetState(LeavingState):
    """Evictions made per budget."""

    name = NAME
    family = "pdb"
    uses_up = True

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._budgets = snapshot.extras[BUDGETS]
        of: dict[str, list[int]] = {}
        for i, budget in enumerate(self._budgets):
            of.setdefault(budget.namespace, []).append(i)
        self._of: Mapping[PodKey, tuple[int, ...]] = {
            pod.key: found
            for pod in snapshot.pods
            if (found := tuple(i for i in of.get(pod.key.namespace, ()) if self._budgets[i].selects(pod)))
        }
        running, expected = [0] * len(self._budgets), [0] * len(self._budgets)
        self._needs: set[PodKey] = set()
        ended = (PodStatus.SUCCEEDED, PodStatus.FAILED)
        for pod in snapshot.pods:
            for i in self._of.get(pod.key, ()):
                expected[i] += pod.status not in ended
                if pod.status is PodStatus.RUNNING:
                    running[i] += 1
                    self._needs.add(pod.key)
        self._allowed = [allowance(b, running[i], expected[i]) for i, b in enumerate(self._budgets)]

    def detach(self) -> None:
        super().detach()
        self._allowed = list(self._allowed)

    def concerns(self, pod: Pod) -> bool:
        return pod.key in self._of

    def identity(self, pod: Pod) -> Hashable:
        return self._of.get(pod.key, ())

    def evictable(self, pod: Pod) -> bool:
        needs = pod.key in self._needs and pod.key not in self.left
        return not needs or (len(self._of[pod.key]) == 1 and self._allowed[self._of[pod.key][0]] > 0)

    def _leave(self, pod: Pod, sign: int) -> None:
        for i in self._of.get(pod.key, ()) if pod.key in self._needs else ():
            self._allowed[i] -= sign

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rows are exact: evictions are at most what every budget still allows."""
        twice = sorted(key for key in self._needs - self.left if len(self._of[key]) > 1)
        if twice:
            yield Row({}, 0, dict.fromkeys(twice, -1), f"{NAME}, two for one pod")
        for i, budget in enumerate(self._budgets):
            pods = [key for key in sorted(self._needs - self.left) if self._of[key] == (i,)]
            if pods:
                name = f"{NAME} {budget.namespace}/{budget.name}"
                yield Row({}, max(self._allowed[i], 0), {key: -1 for key in pods}, name)
