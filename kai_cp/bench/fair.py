"""Finds where two answers differ first: the first pod group in the fair order that only one admits."""

from __future__ import annotations

from collections.abc import Set

from kai_cp.bench.records import AdmissionDifference
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.shares import fair_line
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot


def first_difference(
    snapshot: Snapshot, settings: Settings, here: Set[GroupKey], there: Set[GroupKey]
) -> AdmissionDifference | None:
    """The first difference between two sets of admitted pod groups, in the fair order; None if there is none.

    Pod groups are popped as the queues stand in the snapshot (3.5, 3.6). A group that both answers admit is
    charged to its queue before the next is popped, so up to the difference the order is that of both.
    """
    for turn, key in enumerate(fair_line(snapshot, settings, here), start=1):
        if (key in here) != (key in there):
            return AdmissionDifference(group=f"{key.namespace}/{key.name}", turn=turn, here=key in here)
    return None
