"""Shapes: what batches ask for; equal batches share one. There are many batches and few shapes."""

from __future__ import annotations

from dataclasses import dataclass

from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness import amounts
from kai_cp_models.fairness.amounts import Amounts
from kai_cp_models.pods import Pod
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.units import Batch


@dataclass(frozen=True, slots=True, eq=False)
class BatchShape:
    """What batches of equal pods under equal topology constraints have in common; one object for all of them.

    ``pessimistic`` and ``optimistic``: sizes (2.3). ``examples``: one pod of each spec. ``count``: pods.
    ``leaves``: how many leaf batches. ``scoped``: whether a topology constraint holds for some of them.
    ``by_memory``: whether a pod asks for GPU memory, whose charge depends on the node.
    """

    pessimistic: Amounts
    optimistic: Amounts
    examples: tuple[Pod, ...]
    count: int
    leaves: int
    scoped: bool
    by_memory: bool

    @property
    def uniform(self) -> Pod | None:
        """An example of a batch of equal pods without topology constraints, else None."""
        return self.examples[0] if len(self.examples) == 1 and not self.scoped else None


class Shapes:
    """The shapes of a snapshot's batches."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._claims = snapshot.extras[CLAIM_MILLI_GPUS]
        self._by_batch: dict[Batch, BatchShape] = {}
        self._by_content: dict[tuple[object, ...], BatchShape] = {}

    def of(self, batch: Batch) -> BatchShape:
        """The shape of a batch."""
        known = self._by_batch.get(batch)
        if known is None:
            known = self._by_batch[batch] = self._look(batch)
        return known

    def _look(self, batch: Batch) -> BatchShape:
        # Pods with claims of their own have no equals.
        own = tuple(pod.key for pod in batch.all_pods if pod.key in self._claims) if self._claims else ()
        content = batch.kinds, own
        shape = self._by_content.get(content)
        if shape is None:
            pods = batch.all_pods
            shape = self._by_content[content] = BatchShape(
                amounts.pessimistic_batch(self._snapshot, pods),
                amounts.optimistic_batch(self._snapshot, pods),
                tuple({pod.spec: pod for pod in pods}.values()),
                len(pods),
                len(batch.leaves),
                any(scopes for scopes, _ in batch.leaves),
                any(pod.spec.gpu.memory_mib for pod in pods),
            )
        return shape
