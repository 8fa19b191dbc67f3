"""Proofs of refusals: that no permitted plan serves a pod group beside all that come before it.

Proofs are made at the end of the cycle, for the plan as it is then, and from the snapshot alone: shortcuts of
an action, its other refusals and changes by later actions cannot influence them. Every certificate is a
relaxation. The batches that got a place and come before this one keep one, wherever it is. Beside them, every
group that waits may come or not, and by whichever action: all that one of them could ever take is gone at
once; what could be moved may go anywhere. If there is no place even so, there is none in any permitted plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from kai_cp_models.actions.asking import at_first
from kai_cp_models.actions.stale import stale_groups
from kai_cp_models.cycle import Cycle
from kai_cp_models.joint.problem import Ask, examples
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import GroupKey, Pod
from kai_cp_models.policy import STATE_ACTIONS, TIME_ACTIONS
from kai_cp_models.proof.any_plan import Emptied, Known
from kai_cp_models.proof.departures import Departures
from kai_cp_models.proof.rights import Coming, Rights
from kai_cp_models.proof.served import ServedBatches
from kai_cp_models.reasons import UNCONDITIONAL
from kai_cp_models.refusal import Proof
from kai_cp_models.reservations.maxruntime import overdue_groups
from kai_cp_models.reservations.times import TIMES

_Kind = tuple[int, bool]
"""Groups of one kind are alike (``Snapshot.alike``), and all of them may disturb others or none."""


class Refuter:
    """Proofs for one finished cycle; ``base``: the ledger that it began with."""

    def __init__(self, cycle: Cycle, base: Ledger) -> None:
        self._cycle = cycle
        self._base = base
        self._first_asks: dict[GroupKey, Ask] = {}
        """The first ask of every pod group that waits in the snapshot and may come in some plan."""
        self._kinds: dict[GroupKey, _Kind] = {}
        """Of which kind each of them is."""
        for key, one in at_first(base).groups.items():
            if one.ask is not None and (one.refusal is None or one.refusal.reason not in UNCONDITIONAL):
                self._first_asks[key] = one.ask
                self._kinds[key] = base.snapshot.alike[key], one.delay is None
        self._served = ServedBatches(cycle, base, self._first_asks)

    def proofs(self) -> dict[GroupKey, Proof]:
        """The refused groups for which there is a proof.

        At first every group that waits may come. Those that are refused even so, and whatever else gets a
        place, come in no plan at all, and the rest is asked again beside fewer.
        """
        found, asks = dict[GroupKey, Proof](), dict[GroupKey, Ask]()
        if self._cycle.budget.passed() or self._cycle.dropped:
            return found
        lines, served, refused = at_first(self._base).groups, self._served.groups, self._cycle.waiting
        for key in (group.key for group in self._base.snapshot.waiting_groups):
            one = lines.get(key) if key in refused and key not in served else None
            if one is not None and one.refusal is not None:
                # One that is ready in no plan needs no certificate; one that cannot be read may be ready.
                found |= {key: Proof(one.refusal.reason)} if one.refusal.reason != "InternalError" else {}
            elif one is not None and one.ask is not None and refused[key].reason != "InternalError":
                # What a failure left out would be served by the plan that failed.
                asks[key] = one.ask
        if asks:
            self._compose(asks, found)
        return found

    def _compose(self, asks: dict[GroupKey, Ask], found: dict[GroupKey, Proof]) -> None:
        """Add to ``found`` the proofs for those of ``asks`` that certificates refuse in every plan."""
        rights, known, kinds = None, self._known(), self._kinds
        examples = dict(zip(kinds.values(), self._first_asks.values(), strict=True))
        could = {kind: Coming.of(known.departures, ask, kind[1]) for kind, ask in examples.items()}
        coming = {key: could[kind] for key, kind in kinds.items()}
        left = Counter(coming.values()) - Counter(coming[key] for key in found if key in coming)
        # What is open beside more is open beside fewer, so the last ones are asked first.
        groups: dict[tuple[Hashable, int, Coming], list[GroupKey]] = {}
        for key, ask in asks.items():
            groups.setdefault((known.kind(ask), self._served.before(key), coming[key]), []).append(key)
        certain = {kind: keys for kind, keys in groups.items() if self._certain(asks[keys[0]])}
        alike = dict(sorted(certain.items(), key=lambda item: item[0][1], reverse=True))
        while alike:
            wider, rights = rights, Rights(known.departures, +left)
            if wider and np.array_equal([wider.taken, wider.moved], [rights.taken, rights.moved]):
                return
            emptied, still = Emptied(known, rights), dict(alike)
            for kind, keys in alike.items():
                if self._cycle.budget.passed():
                    return
                ask, beside = asks[keys[0]], kind[1]
                certificate = emptied.refusal(ask, beside)
                if certificate:
                    found |= dict.fromkeys(keys, Proof(certificate))
                if certificate and (not beside or emptied.refusal(ask, 0)):
                    left[kind[2]] -= len(keys)
                    del still[kind]
            alike = still

    def _certain(self, ask: Ask) -> bool:
        """Whether what the ask needs is known: not where further pods of several pod sets wait (which of them
        comes first depends on what a plan takes back), nor where a rule is not sure about a pod of it."""
        state = ask.gang.at_first
        sets = (state.tally.counts[name] for name in ask.gang.by_leaf)
        several = state.satisfied and sum(counts.pending > 0 for counts in sets) > 1
        return not several and not any(rule.unsure(pod) for rule in self._base.rules for pod in ask.pods)

    def _known(self) -> Known:
        """What the certificates of all rounds share."""
        asking = examples((*self._first_asks.values(), *self._served.asks))
        departures = Departures(self._base, _ended(self._cycle, self._base))
        return Known(self._cycle, self._base, departures, self._served, asking)


def _ended(cycle: Cycle, base: Ledger) -> Iterable[Pod]:
    """Pods that end for their own state in some plan; a gang that got its missing pods may be stale, and one
    whose time is over may end where a budget kept it in this plan."""
    snapshot, times = cycle.snapshot, cycle.snapshot.extras[TIMES]
    ending = [key for key, _ in stale_groups(base)]
    ending += [] if times is None else [key for key, _ in overdue_groups(cycle, times)]
    ended = {pod.key for key in ending for pod in snapshot.members[key]}
    done = {key for key, one in cycle.evicted_by.items() if one.action in STATE_ACTIONS | TIME_ACTIONS}
    found = (snapshot.pod_by_key[key] for key in sorted(ended | done))
    return (pod for pod in found if base.place_of(pod) is not None)
