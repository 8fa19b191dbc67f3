"""Batches that are known to find no place, and all that are at least as hard (formulation 1.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kai_cp_models.cycle import Waiting
from kai_cp_models.fairness import amounts
from kai_cp_models.joint.problem import Ask, leaves_with_scopes, signature
from kai_cp_models.ledger import Ledger
from kai_cp_models.rules.table import accepting
from kai_cp_models.snapshot import ActionName, Pod
from kai_cp_models.units import Batch


@dataclass(frozen=True, slots=True)
class _Described:
    """``key``: equal for batches that fare alike; ``plain``: see ``_plain``."""

    batch: Batch
    key: tuple[object, ...]
    terms: tuple[object, ...]
    plain: tuple[Pod, int] | None


@dataclass
class DeadAsks:
    """Refused batches of one action. What is admitted only grows, so a refusal holds to its end."""

    ledger: Ledger
    action: ActionName
    _exact: dict[tuple[object, ...], Waiting] = field(default_factory=dict)
    _plain: dict[tuple[object, ...], list[tuple[Pod, int, Waiting]]] = field(default_factory=dict)
    _described: dict[int, _Described] = field(default_factory=dict)
    """What is compared of every batch that was asked about, by its identity."""

    def proved(self) -> DeadAsks:
        """The refusals that carry a proof, to be added to independently."""
        exact = {key: why for key, why in self._exact.items() if why.proved}
        plain = {terms: [one for one in found if one[2].proved] for terms, found in self._plain.items()}
        return DeadAsks(self.ledger, self.action, exact, plain, self._described)

    def add(self, ask: Ask, why: Waiting) -> None:
        """Note that the batch found no place."""
        one = self._describe(ask)
        self._exact[one.key] = why
        if one.plain is not None:
            self._plain.setdefault(one.terms, []).append((*one.plain, why))

    def find(self, ask: Ask) -> Waiting | None:
        """The refusal of an equal batch, or of one that asks for no more in any respect."""
        if any(rule.helped(pod) for rule in self.ledger.rules for pod in ask.pods):
            # Whoever came since may be the company that the other lacked.
            return None
        one = self._describe(ask)
        found = self._exact.get(one.key)
        if found is not None or one.plain is None:
            return found
        pod, count = one.plain
        for easier, fewer, why in self._plain.get(one.terms, []):
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

    def _describe(self, ask: Ask) -> _Described:
        found = self._described.get(id(ask.batch))
        if found is None:
            terms = self._terms(ask)
            found = _Described(ask.batch, (signature(self.ledger, ask), *terms), terms, _plain(ask))
            self._described[id(ask.batch)] = found
        return found

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
