"""The interface of a step before binding (9.2): it prepares one pod for one node, and undoes that on
failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kai_cp.json_types import Object
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.store import ObjectKey, Store


class BindError(KubeError):
    """A pod cannot be bound as requested. If ``final``, no later attempt can succeed either."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class Awaits(KubeError):
    """A step waits for an object. No thread waits with it: the steps run again when the object changes.

    ``seen`` has the awaited objects of ``store`` as the step saw them (None: absent). After ``seconds`` the
    bind fails with ``reason``.
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
    """One step. Both methods are safe to repeat, and wait only for answers of the API server."""

    def prepare(self, pod: Object, node: Object, request: Object) -> None:
        """Prepare the pod. Raises ``BindError`` if that fails, and :class:`Awaits` if it takes time."""
        ...

    def undo(self, pod: Object, request: Object) -> None:
        """Undo what :meth:`prepare` may have done."""
        ...
