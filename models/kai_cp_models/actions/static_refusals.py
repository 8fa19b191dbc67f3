"""Refusals of eviction actions by counting alone, before any model is built (4.3, 4.4)."""

from __future__ import annotations

from kai_cp_models.cycle import Refusal
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.quota_checks import non_preemptible_over_quota
from kai_cp_models.fairness.reclaim import can_reclaim
from kai_cp_models.joint.policy import EvictionPolicy
from kai_cp_models.joint.problem import Ask
from kai_cp_models.ledger import Ledger


def static_refusal(ledger: Ledger, book: QueueBook, ask: Ask, policy: EvictionPolicy) -> Refusal | None:
    """Why no plan can serve the ask in this action, or None. Every refusal here is a proof.

    ``book``: what queues hold when the ask is decided.
    """
    if ledger.rules:
        for pod in ask.pods:
            for rule in ledger.rules:
                if rule.concerns(pod) and (why := rule.dead_end(pod)):
                    return Refusal("DependencyMissing", why, True)
    for pod in ledger.shape(ask.batch).examples:
        if not ledger.fixed.table.accepted(pod):
            return Refusal("NoNodeAccepts", "no node accepts a pod of the group", True, pod)
    group = ask.group
    if not group.preemptible:
        asked = ledger.shape(ask.batch).optimistic
        refusal = non_preemptible_over_quota(book, group.queue, asked)
        if refusal is not None:
            return Refusal("NonPreemptibleOverQuota", refusal.message, True)
    if policy.by_share:
        asked = ledger.asked(ask.batch)
        refusal = can_reclaim(book, group.queue, asked, group.preemptible)
        if refusal is not None:
            return Refusal("OverFairShare", refusal.message, True)
    return None
