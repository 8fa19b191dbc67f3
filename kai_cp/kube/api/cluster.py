"""The narrow port between the loop and a cluster: one picture out, one plan in.

Two things speak it: :class:`kai_cp.kube.scheduler.api_cluster.ApiCluster` and its twin in memory,
:class:`kai_cp.kube.scheduler.fake_cluster.FakeCluster`, which tests and the simulator use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from kai_cp_models.snapshot import Decision, Plan

WriteOutcome = Literal["done", "conflict", "gone", "failed"]
"""*conflict*: the cluster had changed, the next cycle sees it; *gone*: the pod or node left."""


class WriteResult(NamedTuple):
    """What became of one decision."""

    decision: Decision
    outcome: WriteOutcome
    message: str = ""


class Cluster(Protocol):
    """A cluster that can be looked at and acted on."""

    def snapshot(self) -> Mapping[str, Any]:
        """The cluster now, in KAI's snapshot format, with everything done so far."""
        ...

    def apply(self, plan: Plan) -> Sequence[WriteResult]:
        """Carry the plan's decisions out, in order; one result each."""
        ...
