"""What a step before binding is (9.2): something made true for one pod on one node, and undone on failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kai_cp.json_types import Object
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.store import ObjectKey, Store


class BindError(KubeError):
    """A pod cannot be bound as ordered; ``final``: no later attempt can succeed either."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class Awaits(KubeError):
    """What a step needs has not come. No thread waits for it: the steps run again when an object changes.

    ``seen``: the objects of ``store`` that are waited for, as the step saw them (None: absent). After
    ``seconds`` the bind fails for ``reason``.
    """

    def __init__(
        self, reason: str, store: Store, seen: Mapping[ObjectKey, Object | None], seconds: float
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.store = store
        self.seen = seen
        self.seconds = seconds


class BindStep(Protocol):
    """One step. Both methods are safe to repeat, and neither waits for anything but answers of the server."""

    def prepare(self, pod: Object, node: Object, request: Object) -> None:
        """Make it true, or raise: :class:`Awaits` where that takes time."""
        ...

    def undo(self, pod: Object, request: Object) -> None:
        """Take back what :meth:`prepare` may have done."""
        ...
