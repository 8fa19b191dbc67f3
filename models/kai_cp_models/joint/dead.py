"""Batches that are known to find no place, and all that are at least as hard (formulation 1.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kai_cp_models.cycle import Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.problem import Ask, leaves_with_scopes, signature
from kai_cp_models.ledger import Ledger
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import ActionName, Pod


@dataclass
class DeadAsks:
    """Refused batches of one action. What is admitted only grows, so a refusal holds to its end."""

    ledger: Ledger
    action: ActionName
    _exact: dict[tuple[object, ...], Waiting] = field(default_factory=dict)
    _plain: dict[tuple[object, ...], list[tuple[Pod, int, Waiting]]] = field(default_factory=dict)

    def add(self, ask: Ask, why: Waiting) -> None:
        """Note that the batch found no place."""
        self._exact[self._key(ask)] = why
        plain = _plain(ask)
        if plain is not None:
            self._plain.setdefault(self._terms(ask), []).append((*plain, why))

    def find(self, ask: Ask) -> Waiting | None:
        """The refusal of an equal batch, or of one that asks for no more in any respect."""
        found = self._exact.get(self._key(ask))
        plain = _plain(ask)
        if found is not None or plain is None:
            return found
        pod, count = plain
        for easier, fewer, why in self._plain.get(self._terms(ask), []):
            if fewer <= count and self._easier(easier, pod):
                return why
        return None

    def _easier(self, other: Pod, pod: Pod) -> bool:
        """Whether ``other`` asks for no more than ``pod`` and takes every node that ``pod`` takes."""
        easier, spec = other.spec, pod.spec
        if easier is spec:
            return True
        table = self.ledger.fixed.table
        if easier.gpu.shares or spec.gpu.shares or easier.scheduling_key or spec.scheduling_key:
            return False
        if any(rule.concerns(one) for rule in self.ledger.rules for one in (other, pod)):
            # A port or a device may have been what the other lacked.
            return False
        if any(small > large for small, large in zip(easier.requests, spec.requests, strict=True)):
            return False
        return not bool((accepting(table, pod) & ~accepting(table, other)).any())

    def _key(self, ask: Ask) -> tuple[object, ...]:
        return (signature(self.ledger, ask), *self._terms(ask))

    def _terms(self, ask: Ask) -> tuple[object, ...]:
        """What an ask may do to others: asks with equal terms share their fate."""
        group = ask.group
        if self.action in ("allocate", "consolidation"):
            return ()
        if self.action == "preempt":
            return (group.queue, group.priority, group.preemptible)
        asked = amounts.pessimistic_batch(self.ledger.snapshot, ask.pods)
        return (group.queue, group.preemptible, tuple(amount > 0 for amount in asked))


def _plain(ask: Ask) -> tuple[Pod, int] | None:
    """(example, count) of a batch of equal pods without topology constraints, else None."""
    leaves = leaves_with_scopes(ask.batch)
    if any(scopes for scopes, _ in leaves):
        return None
    if len({id(pod.spec) for pod in ask.pods}) != 1:
        return None
    return ask.pods[0], len(ask.pods)
