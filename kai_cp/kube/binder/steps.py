"""What a step before binding is (9.2): something made true for one pod on one node, and undone on failure."""

from __future__ import annotations

from typing import Protocol

from kai_cp.json_types import Object
from kai_cp.kube.api.errors import KubeError


class BindError(KubeError):
    """A pod cannot be bound as ordered; ``final``: no later attempt can succeed either."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class BindStep(Protocol):
    """One step. Both methods are safe to repeat."""

    def prepare(self, pod: Object, node: Object, request: Object) -> None:
        """Make it true, or raise; may wait."""
        ...

    def undo(self, pod: Object, request: Object) -> None:
        """Take back what :meth:`prepare` may have done."""
        ...
