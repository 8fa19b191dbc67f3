"""Runs controllers with their watches, queues and threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_cp.json_types import Object
from kai_cp.kube.api.errors import ApiError, KubeError, LeaseLost
from kai_cp.kube.api.informers import Informers
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.store import ObjectKey, name_of
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.api.workqueue import WorkQueue
from kai_cp.kube.controllers.base import Context, Controller, Factory, NotYet, Want
from kai_cp.kube.controllers.options import ControllerOptions

LOG = logging.getLogger(__name__)
SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics(Collector):
    """The metrics of the host."""

    def __init__(self, registry: CollectorRegistry, queues: Mapping[str, WorkQueue]) -> None:
        self._queues = queues
        self.reconciles = Counter(
            "kai_cp_controller_reconciles_total",
            "Keys reconciled, by controller and result.",
            ("controller", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "kai_cp_controller_reconcile_seconds",
            "Time of one reconcile.",
            ("controller",),
            buckets=SECONDS,
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The number of keys that wait now."""
        family = GaugeMetricFamily("kai_cp_controller_waiting", "Keys that wait.", labels=["controller"])
        for name, queue in self._queues.items():
            family.add_metric([name], len(queue))
        yield family


class Host:
    """The controllers of one process."""

    def __init__(
        self,
        factories: Mapping[str, Factory],
        transport: Transport,
        recorder: Recorder,
        registry: CollectorRegistry,
        options: ControllerOptions,
        *,
        lost: Callable[[], None],
    ) -> None:
        self.informers = Informers(transport)
        self._lost = lost
        self._queues: dict[str, WorkQueue] = {}
        self._controllers: dict[str, Controller] = {}
        self._metrics = Metrics(registry, self._queues)
        self._threads: list[threading.Thread] = []
        for name, factory in factories.items():
            queue = WorkQueue()
            context = Context(transport, self.informers, recorder, registry, options, queue.add)
            controller = factory(context)
            queue.settle(controller.settle_seconds)
            self._queues[name], self._controllers[name] = queue, controller
            for want in controller.wants():
                self._follow(want, queue)

    def start(self) -> None:
        """Begin to reconcile. Every followed kind must already be listed."""
        for name, controller in self._controllers.items():
            for i in range(max(1, controller.workers)):
                thread = threading.Thread(
                    target=self._work, args=(name, controller), name=f"{name}-{i}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Stop; writes in progress are finished."""
        self.informers.stop()
        for queue in self._queues.values():
            queue.stop()
        for thread in self._threads:
            thread.join(2.0)

    def hung(self) -> str:
        """The controllers whose work has not ended in time, or ""."""
        found = {name: queue.hung() for name, queue in self._queues.items()}
        return "; ".join(f"{name}: {why}" for name, why in found.items() if why)

    def followed(self) -> list[Resource]:
        """The kinds that the controllers follow."""
        return [want.resource for controller in self._controllers.values() for want in controller.wants()]

    @property
    def idle(self) -> bool:
        """Whether no controller has work."""
        return all(queue.idle for queue in self._queues.values())

    def _follow(self, want: Want, queue: WorkQueue) -> None:
        store = self.informers.store(
            want.resource,
            transform=want.transform,
            metadata_only=want.metadata_only,
            fields=want.fields,
            optional=want.optional,
        )

        def changed(old: Object | None, new: Object | None) -> None:
            queue.add(_keys(want, old, new))

        store.listen(changed)

    def _work(self, name: str, controller: Controller) -> None:
        queue = self._queues[name]
        while (taken := queue.get()) is not None:
            key, attempt = taken
            started = time.monotonic()
            try:
                after = controller.reconcile(key, attempt)
            except LeaseLost:
                self._lost()
                return
            except KubeError as error:
                # Other programs write too, so a conflict is normal; the next attempt sees their change.
                conflict = isinstance(error, ApiError) and error.status == 409
                own = isinstance(error, NotYet)
                # The first may be a matter of arrival order, and later ones say the same.
                level = logging.DEBUG if conflict or (own and attempt != 1) else logging.WARNING
                LOG.log(
                    level,
                    "the object is not in order yet, and is tried again",
                    extra=_extra(name, key, str(error)),
                )
                self._metrics.reconciles.labels(name, "conflict" if conflict else "error").inc()
                queue.failed(key, own=own)
            except Exception as error:
                LOG.exception(
                    "a controller failed at an object, and tries again: report this defect with its trace",
                    extra=_extra(name, key, str(error)),
                )
                self._metrics.reconciles.labels(name, "defect").inc()
                queue.failed(key)
            else:
                self._metrics.reconciles.labels(name, "done").inc()
                queue.done(key, after)
            self._metrics.seconds.labels(name).observe(time.monotonic() - started)


def _keys(want: Want, old: Object | None, new: Object | None) -> Iterable[ObjectKey]:
    """The keys of a change. A defect in ``keys`` must not end the watch."""
    try:
        return list(want.keys(old, new))
    except Exception:
        name = name_of(new or old)
        LOG.exception(
            "a change of this object was not heard by its controller: report this defect with its trace",
            extra={"resource": want.resource.plural, "object": name},
        )
        return ()


def _extra(name: str, key: ObjectKey, error: str) -> dict[str, str]:
    return {"controller": name, "key": "/".join(part for part in key if part), "error": error}
