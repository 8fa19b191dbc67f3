"""What a controller is, and what it is given (CONTRIBUTING, "Add a controller")."""

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
    """A key cannot be brought in order now; the text says why."""


class Want(NamedTuple):
    """One kind that a controller follows.

    ``keys``: which keys to reconcile after a change from the first state to the second; None is absent.
    Controllers that want the same kind share one watch, so all must want it in the same way.
    """

    resource: Resource
    keys: Callable[[Object | None, Object | None], Iterable[ObjectKey]]
    transform: Callable[[Object], Object] = t.plain
    metadata_only: bool = False
    fields: str = ""
    optional: bool = False


class Controller(Protocol):
    """Brings the cluster to what it should be, one key at a time.

    :meth:`reconcile` is called by several threads, never by two for the same key. It reads stores, writes by
    the transport, and answers in how many seconds it wants to be asked again (None: after the next change).
    What it raises of ``KubeError`` is tried again, later each time.
    """

    workers: int
    settle_seconds: float
    """How long a key waits for further changes before it is reconciled."""

    def wants(self) -> Sequence[Want]:
        """What to follow."""
        ...

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Bring ``key`` in order; ``attempt`` counts failures in a row so far."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a controller is made with. ``enqueue`` asks for keys outside of what its wants say."""

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
    """Keys of both states of an object, if the change matters."""

    def found(old: Object | None, new: Object | None) -> Iterable[ObjectKey]:
        if old is not None and new is not None and not relevant(old, new):
            return ()
        both: dict[ObjectKey, Any] = {}
        for state in (old, new):
            if state is not None:
                both |= dict.fromkeys(keys(state))
        return both

    return found
