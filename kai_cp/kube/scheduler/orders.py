"""Orders on their way: the decisions of a cycle are sent beside the next cycles, and show in them as sent.

Thousands of orders take seconds to send. Pods that come meanwhile do not wait for them. No place is given
twice, because snapshots show an order from the moment it was made until it was refused. Namespaces take
turns. The orders of one namespace are sent in the order of the plan, so the pods of a gang follow each other.
While other namespaces have new pods, orders of earlier cycles are sent slowly, because all share one server.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from kai_cp.json_types import Object
from kai_cp.kube.api.api_objects import belongs_to
from kai_cp.kube.api.errors import LeaseLost
from kai_cp.kube.api.fair_queue import FairQueue
from kai_cp.kube.api.store import key_of
from kai_cp.kube.api.write_results import WriteResult
from kai_cp_models.plan import Decision
from kai_cp_models.pods import GroupKey, PodKey

LOG = logging.getLogger(__name__)
WRITERS: Final = 8
"""Orders that are sent at a time."""
LOOK_SECONDS: Final = 0.05
"""How often it is looked whether pods of others are new."""
PAUSE_SECONDS: Final = 0.1
"""Between orders that stand back for those."""
OrderClosed = Callable[[GroupKey, Sequence[WriteResult]], None]


class Sending:
    """A plan that is being carried out. ``closed`` is called with the results of each pod group, once all
    its decisions have one.
    """

    def __init__(
        self, decisions: Sequence[Decision] = (), closed: OrderClosed = lambda _group, _results: None
    ):
        self._closed = closed
        self._sizes = Counter(decision.group for decision in decisions)
        self._results: defaultdict[GroupKey | None, dict[int, WriteResult]] = defaultdict(dict)
        self._left = len(decisions)
        self._condition = threading.Condition()

    def add(self, place: int, result: WriteResult) -> None:
        """Note the result of the decision at this place in the plan."""
        group = result.decision.group
        with self._condition:
            found = self._results[group]
            found[place] = result
            whole = len(found) == self._sizes[group]
        if whole and group is not None:
            try:
                self._closed(group, [found[i] for i in sorted(found)])
            except Exception:
                LOG.exception(
                    "what became of a pod group is not noted: report this defect with its trace",
                    extra={"podGroup": str(group)},
                )
        with self._condition:
            self._left -= 1
            if not self._left:
                self._condition.notify_all()

    @property
    def done(self) -> bool:
        """Whether every decision has its result."""
        return not self._left

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the results, at most ``seconds``; returns whether all are there."""
        with self._condition:
            return self._condition.wait_for(lambda: self.done, seconds)

    def results(self) -> list[WriteResult]:
        """The results so far, in the plan's order."""
        with self._condition:
            found = {i: result for group in self._results.values() for i, result in group.items()}
        return [found[i] for i in sorted(found)]


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A decision to be sent. ``shown``: the BindRequest, or the evicted pod, as the cluster will have it."""

    decision: Decision
    shown: Object
    place: int
    """In its plan."""
    sending: Sending

    def meant_for(self, pod: Object) -> bool:
        """Whether the order is about this pod, and not about an earlier pod of the same name."""
        if self.decision.kind == "Bind":
            return belongs_to(self.shown, pod)
        return bool(self.shown["metadata"].get("uid") == pod["metadata"].get("uid"))


class Orders:
    """Sends orders. A later one for the same pod takes the place of one that is not sent yet."""

    def __init__(self, send: Callable[[Order], WriteResult]) -> None:
        self.hurried: Callable[[], bool] = lambda: False
        """Whether pods are new in namespaces other than :attr:`left`."""
        self.left: frozenset[str] = frozenset()
        """Namespaces of which earlier cycles left orders to be sent."""
        self._send = send
        self._sending: Counter[str] = Counter()
        self._began = -math.inf
        """When the last order of those namespaces was begun."""
        self._queue: FairQueue[Order] = FairQueue()
        self._unsent: dict[PodKey, Order] = {}
        """Those that are being sent included."""
        self._lost: LeaseLost | None = None
        self._condition = threading.Condition()
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")

    def put(self, orders: Sequence[Order]) -> None:
        """Queue orders for sending. From now on they show in every snapshot."""
        replaced = []
        with self._condition:
            for order in orders:
                pod = order.decision.pod
                if self._queue.has(pod.namespace, pod):
                    replaced.append(self._unsent[pod])
                self._unsent[pod] = order
                self._queue.put(pod.namespace, pod, order)
            self._condition.notify_all()
        for order in replaced:
            message = "decided otherwise before it was sent"
            order.sending.add(order.place, WriteResult(order.decision, "conflict", message))
        for _ in orders:
            self._writers.submit(self._send_next)

    def _send_next(self) -> None:
        order = self._take()
        if order is None:
            return
        try:
            result = self._send(order)
        except LeaseLost as lost:
            self._lost = lost
            result = WriteResult(order.decision, "failed", str(lost))
        with self._condition:
            if self._unsent.get(order.decision.pod) is order:
                del self._unsent[order.decision.pod]
            self._sending[order.decision.pod.namespace] -= 1
            self._condition.notify_all()
        order.sending.add(order.place, result)

    def _stands_back(self) -> bool:
        """Whether orders of earlier cycles wait."""
        one_goes = any(self._sending[namespace] for namespace in self.left)
        return (one_goes or time.monotonic() < self._began + PAUSE_SECONDS) and self.hurried()

    def _take(self) -> Order | None:
        """The next order; None when none waits."""
        with self._condition:
            while self._queue:
                order = self._queue.take(self.left if self._stands_back() else ())
                if order is not None:
                    if order.decision.pod.namespace in self.left:
                        self._began = time.monotonic()
                    self._sending[order.decision.pod.namespace] += 1
                    return order
                self._condition.wait(LOOK_SECONDS)
        return None

    def binds(self, pod: PodKey) -> bool:
        """Whether a pod has an order to be bound that is not sent yet."""
        order = self._unsent.get(pod)
        return order is not None and order.decision.kind == "Bind"

    def namespaces(self) -> frozenset[str]:
        """The namespaces with orders that are not sent yet."""
        with self._condition:
            return frozenset(pod.namespace for pod in self._unsent)

    def shown(self, snapshot: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """A snapshot with what is not sent yet; raises :class:`LeaseLost` once that may not be written.

        Orders are looked up before the snapshot is taken: one that is sent meanwhile is in it.
        """
        if self._lost is not None:
            raise self._lost
        with self._condition:
            orders = dict(self._unsent)
        raw = snapshot()
        if not orders:
            return raw
        objects = raw["rawObjects"]
        pods = [_leaving(pod, orders.get(PodKey(*key_of(pod)))) for pod in objects["pods"]]
        requests = {PodKey(*key_of(request)): request for request in objects["bindRequests"]}
        requests |= {pod: order.shown for pod, order in orders.items() if order.decision.kind == "Bind"}
        ordered = [requests[pod] for pod in sorted(requests)]
        return {**raw, "rawObjects": {**objects, "pods": pods, "bindRequests": ordered}}

    def drain(self, seconds: float) -> bool:
        """Wait until all orders are sent, at most ``seconds``; returns whether they are."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._unsent, seconds)

    def close(self) -> None:
        """Send nothing more."""
        with self._condition:
            self._queue.clear()
        self._writers.shutdown(wait=False, cancel_futures=True)


def _leaving(pod: Object, order: Order | None) -> Object:
    """The pod, or what becomes of it when its eviction is sent."""
    if order is None or order.decision.kind != "Evict" or "deletionTimestamp" in pod["metadata"]:
        return pod
    return order.shown if order.meant_for(pod) else pod
