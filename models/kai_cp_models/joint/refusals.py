"""Batches that are known to find no place; they refuse all batches that are at least as hard (formulation
1.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask, fits_in_place_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import Pod
from kai_cp_models.refusal import Refusal


@dataclass
class RefusalCache:
    """Refused batches of one action. More and more is admitted in an action, so a refusal holds until its
    end.
    """

    ledger: Ledger
    policy: EvictionPolicy | None
    """None: allocate, which takes nothing."""
    _known: dict[tuple[object, ...], Refusal] = field(default_factory=dict)
    """By what decides about an ask (``_key``): what was added, or found from an easier batch."""
    _plain: dict[tuple[object, ...], list[tuple[Pod, int, Refusal]]] = field(default_factory=dict)
    """Batches of equal pods that were added, by their terms: one pod, and how many there are."""

    def proved(self) -> RefusalCache:
        """An independent copy with the refusals that carry a proof."""
        known = {key: why for key, why in self._known.items() if why.proof}
        plain = {terms: [one for one in found if one[2].proof] for terms, found in self._plain.items()}
        return RefusalCache(self.ledger, self.policy, known, plain)

    def add(self, ask: Ask, why: Refusal) -> None:
        """Note that the batch found no place, unless a group placed later may be what its pod affinity
        lacked.
        """
        shape = ask.kind.shape
        if any(rule.opened_by(pod) for rule in self.ledger.rules for pod in shape.examples):
            return
        self._known[self._key(ask)] = why
        if shape.uniform is not None:
            self._plain.setdefault(self._terms(ask), []).append((shape.uniform, shape.count, why))

    def find(self, ask: Ask) -> Refusal | None:
        """The refusal of an equal batch, or of one that asks for at most as much in every respect."""
        key, shape = self._key(ask), ask.kind.shape
        found = self._known.get(key)
        if found is None and (pod := shape.uniform) is not None:
            for easier, count, why in self._plain.get(self._terms(ask), ()):
                if count <= shape.count and (
                    easier.spec is pod.spec or fits_in_place_of(self.ledger, easier, pod)
                ):
                    found = self._known[key] = why
                    break
        return found

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
