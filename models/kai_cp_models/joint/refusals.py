"""Batches that are known to find no place; they refuse all batches that are at least as hard (formulation
1.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kai_cp_models.cycle import Refusal
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask, AskKind, fits_in_place_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod


@dataclass
class RefusalCache:
    """Refused batches of one action. More and more is admitted in an action, so a refusal holds until its
    end.
    """

    ledger: Ledger
    policy: EvictionPolicy | None
    """None: allocate, which takes nothing."""
    _exact: dict[tuple[object, ...], Refusal] = field(default_factory=dict)
    _plain: dict[tuple[object, ...], list[tuple[Pod, int, Refusal]]] = field(default_factory=dict)
    _of_kind: dict[AskKind, Refusal] = field(default_factory=dict)
    """What was found, by the kind that was looked for."""

    def proved(self) -> RefusalCache:
        """An independent copy with the refusals that carry a proof."""
        exact = {key: why for key, why in self._exact.items() if why.proved}
        plain = {terms: [one for one in found if one[2].proved] for terms, found in self._plain.items()}
        return RefusalCache(self.ledger, self.policy, exact, plain)

    def add(self, ask: Ask, why: Refusal) -> None:
        """Note that the batch found no place."""
        self._exact[self._key(ask)] = why
        shape = ask.kind.shape
        if shape.uniform is not None:
            self._plain.setdefault(self._terms(ask), []).append((shape.uniform, shape.count, why))

    def find(self, ask: Ask) -> Refusal | None:
        """The refusal of an equal batch, or of one that asks for at most as much in every respect."""
        known = self._of_kind.get(ask.kind)
        if known is not None:
            return known
        if self.ledger.rules and any(rule.opened_by(pod) for rule in self.ledger.rules for pod in ask.pods):
            # A group placed since then may be what the refused batch's pod affinity lacked.
            return None
        found = self._exact.get(self._key(ask)) or self._easier(ask)
        if found is not None:
            self._of_kind[ask.kind] = found
        return found

    def _easier(self, ask: Ask) -> Refusal | None:
        """The refusal of a batch that asks for at most as much."""
        shape = ask.kind.shape
        pod = shape.uniform
        if pod is None:
            return None
        for easier, fewer, why in self._plain.get(self._terms(ask), ()):
            if fewer <= shape.count and (
                easier.spec is pod.spec or fits_in_place_of(self.ledger, easier, pod)
            ):
                return why
        return None

    def _key(self, ask: Ask) -> tuple[object, ...]:
        """Asks with equal keys are admitted or refused alike."""
        return ask.kind.signature, self._terms(ask)

    def _terms(self, ask: Ask) -> tuple[object, ...]:
        """What an ask may take from others: with equal terms, equal asks are admitted or refused alike."""
        group = ask.group
        if self.policy is None or not self.policy.may_lose:
            return ()
        if self.policy.own_queue:
            return (group.queue, group.priority, group.preemptible)
        return (group.queue, group.preemptible, *(amount > 0 for amount in ask.asked))
