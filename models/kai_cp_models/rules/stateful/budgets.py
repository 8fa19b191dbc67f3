"""PodDisruptionBudgets, an option that KAI lacks: when on, no eviction goes beyond a budget.

A budget allows as many evictions as its status says. Without a status, the running pods that it selects are
compared with ``minAvailable`` or ``maxUnavailable``. The Eviction API evicts no pod that two budgets select,
whatever they allow. Pods that do not run yet need no budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kai_cp_models.pods import LabelSelector, Pod, PodKey, PodStatus
from kai_cp_models.records.budgets import BUDGETS, DisruptionBudget
from kai_cp_models.rules.stateful.protocol import LeavingState, Row, RuleState
from kai_cp_models.selectors import Selecting
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


class Budgets:
    """The budgets of a snapshot: which of them protect a pod, and how many evictions each one allows.

    ``of``: positions in ``all`` of the budgets of a pod; two of them where there are more. ``allowed``: by
    position, for budgets that are the only one of some pod.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.all: tuple[DisruptionBudget, ...] = snapshot.extras[BUDGETS]
        self.of: dict[PodKey, tuple[int, ...]] = {}
        selecting = self._selecting(range(len(self.all)))
        pods = [pod for pod in snapshot.pods if pod.key.namespace in selecting]
        for pod in pods:
            if found := selecting[pod.key.namespace].of(pod.labels, 2):
                self.of[pod.key] = tuple(found)
        alone = {found[0] for found in self.of.values() if len(found) == 1}
        selecting = self._selecting(sorted(alone))
        running, expected = Counter[int](), Counter[int]()
        for pod in pods:
            if pod.key.namespace in selecting and pod.status not in (PodStatus.SUCCEEDED, PodStatus.FAILED):
                found = selecting[pod.key.namespace].of(pod.labels)
                expected.update(found)
                running.update(found if pod.status is PodStatus.RUNNING else ())
        self.allowed = {i: allowance(self.all[i], running[i], expected[i]) for i in alone}

    def _selecting(self, these: Iterable[int]) -> dict[str, Selecting[int]]:
        """Some of the budgets, by namespace."""
        found: dict[str, list[tuple[LabelSelector | None, int]]] = {}
        for i in these:
            found.setdefault(self.all[i].namespace, []).append((self.all[i].pods, i))
        return {namespace: Selecting(budgets) for namespace, budgets in found.items()}

    def allow(self, pods: Iterable[Pod], allowed: Mapping[int, int]) -> bool:
        """Whether the pods may be evicted together if budgets allow so many; a pod with two budgets never
        may."""
        of = [self.of[pod.key] for pod in pods if pod.key in self.of]
        counts = Counter(found[0] for found in of)
        return all(len(found) == 1 for found in of) and all(n <= allowed[i] for i, n in counts.items())


class BudgetState(LeavingState):
    """Evictions made per budget."""

    name = NAME
    family = "pdb"
    uses_up = True

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._budgets = Budgets(snapshot)
        self._allowed = self._budgets.allowed
        running = (pod.key for pod in snapshot.pods if pod.status is PodStatus.RUNNING)
        self._needs = self._budgets.of.keys() & set(running)

    def detach(self) -> None:
        super().detach()
        self._allowed = dict(self._allowed)

    def concerns(self, pod: Pod) -> bool:
        return pod.key in self._budgets.of

    def identity(self, pod: Pod) -> Hashable:
        return self._budgets.of.get(pod.key, ())

    def evictable(self, pod: Pod) -> bool:
        needs = pod.key in self._needs and pod.key not in self.left
        return not needs or self._budgets.allow((pod,), self._allowed)

    def _leave(self, pod: Pod, sign: int) -> None:
        for i in self._budgets.of[pod.key] if pod.key in self._needs else ():
            self._allowed[i] = self._allowed.get(i, 0) - sign

    def rows(self, classes: Sequence[Pod], sizes: Sequence[int], nodes: Sequence[int]) -> Iterable[Row]:
        """The rows are exact: evictions are at most what every budget still allows."""
        by_budget: dict[tuple[int, ...], list[PodKey]] = {}
        for key in sorted(self._needs - self.left):
            by_budget.setdefault(self._budgets.of[key], []).append(key)
        twice = sorted(key for found, keys in by_budget.items() if len(found) > 1 for key in keys)
        if twice:
            yield Row({}, 0, dict.fromkeys(twice, -1), f"{NAME}, two for one pod")
        for (i,), pods in sorted(found for found in by_budget.items() if len(found[0]) == 1):
            budget = self._budgets.all[i]
            name = f"{NAME} {budget.namespace}/{budget.name}"
            yield Row({}, max(self._allowed[i], 0), {key: -1 for key in pods}, name)
