"""The narrow interface between the loop and a cluster: a snapshot comes out, a plan goes in.

Two classes implement it: :class:`kai_cp.kube.scheduler.api_cluster.ApiCluster` and its twin in memory,
:class:`kai_cp.kube.scheduler.fake_cluster.FakeCluster`, which tests and the simulator use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from kai_cp_models.snapshot import Decision, Plan

WriteOutcome = Literal["done", "conflict", "gone", "failed"]
"""*conflict*: the cluster had changed, and the next cycle sees that; *gone*: the pod or node no longer
exists.
"""


class WriteResult(NamedTuple):
    """The result of writing one decision."""

    decision: Decision
    outcome: WriteOutcome
    message: str = ""


class Cluster(Protocol):
    """A cluster that can be read and changed."""

    def snapshot(self) -> Mapping[str, Any]:
        """The cluster now, in KAI's snapshot format, with everything written so far."""
        ...

    def apply(self, plan: Plan) -> Sequence[WriteResult]:
        """Carry the plan's decisions out, in order; one result each."""
        ...
