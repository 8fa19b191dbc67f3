"""The audit: all subjects of the check, one after the other.

Every module of this package with a function ``broken`` is a subject; there is no list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from itertools import count
from pkgutil import iter_modules
from typing import Final

from kai_cp_models import check
from kai_cp_models.blame import raised_for
from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.snapshot_facts import SnapshotFacts
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.settings import OptionalRules
from kai_cp_models.snapshot import Snapshot

Subject = Callable[[PlannedCluster], Iterator[Violation]]

UNJUDGED: Final = "the plan cannot be judged"
"""The sentence for a subject that raises."""
MOST_DECISIONS: Final = 1_000
"""The most decisions of a plan that is compared with other plans; each of those is checked as a whole."""
MOST_PLANS: Final = 16
"""The most plans with which one plan is compared; with all of them a check takes at most 17 times as long."""


def _subjects() -> Iterator[tuple[str, Subject]]:
    for found in iter_modules(check.__path__, f"{check.__name__}."):
        if found.name != __name__:
            broken: Subject | None = getattr(import_module(found.name), "broken", None)
            if broken is not None:
                yield found.name.rpartition(".")[2], broken


SUBJECTS: Final = dict(sorted(_subjects(), key=lambda one: (one[0] != "protocol", one[0])))
"""Every subject by its name; ``protocol``, the form of a plan, is first."""


def audit(
    snapshot: Snapshot,
    plan: Plan,
    options: OptionalRules | None = None,
    *,
    start: SnapshotFacts | None = None,
    left_out: Collection[GroupKey] = (),
) -> list[Violation]:
    """Every rule that the plan breaks; empty when the plan may be sent.

    Rules that the snapshot already breaks are not reported, only what the plan adds or makes worse.
    ``options``: rules that KAI lacks and that are on. ``start``: shared by audits of one snapshot.
    ``left_out``: pod groups that some action left alone because plans with them failed.
    """
    if not plan.decisions and not plan.reservations:
        return []
    rules = options if options is not None else OptionalRules.model_validate({})
    compared, small = count(1), len(plan.decisions) <= MOST_DECISIONS
    facts = start or SnapshotFacts.of(snapshot)

    def lawful(other: Plan) -> bool:
        late = next(compared) > MOST_PLANS
        return not late and next(_faults(PlannedCluster(snapshot, other, rules, facts)), None) is None

    failed = (one.group for one in plan.unscheduled if one.reason == "InternalError")
    others = lawful if small else None
    world = PlannedCluster(snapshot, plan, rules, facts, others, frozenset((*left_out, *failed)))
    return list(_faults(world))


def _faults(world: PlannedCluster) -> Iterator[Violation]:
    """What all subjects find; a subject that raises permits nothing."""
    for name, subject in SUBJECTS.items():
        try:
            yield from subject(world)
        except Exception as problem:
            words = f"{UNJUDGED}: {type(problem).__name__}: {problem}"
            yield Violation(name, words, groups=tuple(raised_for(problem)))


def violations(
    snapshot: Snapshot,
    plan: Plan,
    options: OptionalRules | None = None,
    *,
    start: SnapshotFacts | None = None,
) -> list[str]:
    """``audit`` in words."""
    return list(map(str, audit(snapshot, plan, options, start=start)))
