"""The interface of a controller, and what the host gives it (CONTRIBUTING, "Add a controller")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from prometheus_client import CollectorRegistry

from kai_cp.json_types import Object
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.errors import KubeError
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import ObjectKey
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.controllers.options import ControllerOptions


class NotYet(KubeError):
    """A key cannot be reconciled yet; the text says why."""


class Want(NamedTuple):
    """One kind that a controller follows.

    ``keys`` returns the keys to reconcile after an object changed from the first state to the second; None
    means that there is no object.
    Controllers that want the same kind share one watch, so all must want it in the same way.
    """

    resource: Resource
    keys: Callable[[Object | None, Object | None], Iterable[ObjectKey]]
    transform: Callable[[Object], Object] = t.plain
    metadata_only: bool = False
    fields: str = ""
    optional: bool = False


class Controller(Protocol):
    """Brings the cluster to its wanted state, one key at a time.

    Several threads call :meth:`reconcile`, never two at once for the same key. It reads stores, writes
    through the transport, and returns after how many seconds it wants to be called again (None: after the
    next change). After a ``KubeError`` the key is tried again, each time after a longer pause.
    """

    workers: int
    settle_seconds: float
    """How long a key waits for further changes before it is reconciled."""

    def wants(self) -> Sequence[Want]:
        """The kinds to follow."""
        ...

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Reconcile ``key``; ``attempt`` is the number of failures in a row so far."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What the host passes to a controller. ``enqueue`` adds keys that no followed change names."""

    transport: Transport
    informers: Informers
    recorder: Recorder
    registry: CollectorRegistry
    options: ControllerOptions
    enqueue: Callable[[Iterable[ObjectKey]], None]


Factory = Callable[[Context], Controller]


def changed(
    keys: Callable[[Object], Iterable[ObjectKey]], relevant: Callable[[Object, Object], bool] = t.any_change
) -> Callable[[Object | None, Object | None], Iterable[ObjectKey]]:
    """The keys of an object's old and new state, if the change matters."""

    def found(old: Object | None, new: Object | None) -> Iterable[ObjectKey]:
        if old is not None and new is not None and not relevant(old, new):
            return ()
        both: dict[ObjectKey, Any] = {}
        for state in (old, new):
            if state is not None:
                both |= dict.fromkeys(keys(state))
        return both

    return found
