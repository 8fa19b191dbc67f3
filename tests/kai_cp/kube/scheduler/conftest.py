"""A live cluster on a stub API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.recorder import Recorder
from kai_cp.kube.api.write_results import WriteResult
from kai_cp.kube.scheduler.api_cluster import ApiCluster
from kai_cp.kube.scheduler.backoff import BindBackoff
from kai_cp.kube.scheduler.cache import ClusterCache
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions, default_config
from kai_cp_models.plan import Plan
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import group, node, pod, queue
from tests.kai_cp.kube.stub import StubServer


class Setup:
    """The parts that write and what they read, without the loop."""

    clock: Callable[[], float] = staticmethod(lambda: 1000.0)

    def __init__(self, server: StubServer, *, budgets: bool = False, **options: object) -> None:
        self.server = server
        self.options = SchedulerOptions(**{"mode": Mode.ENFORCE, **options})  # type: ignore[arg-type]
        api = server.transport()
        self.cache = ClusterCache(api, self.options, default_config())
        self.writer = BackgroundWriter(2)
        recorder = Recorder(api, self.writer, "kai-scheduler")
        self.backoff = BindBackoff()
        self.live = ApiCluster(
            api,
            self.cache,
            self.options,
            recorder,
            self.writer,
            backoff=self.backoff,
            clock=self.clock,
            budgets=budgets,
        )
        self.cache.start()
        assert self.cache.wait_synced(PATIENCE_SECONDS)

    def apply(self, plan: Plan) -> Sequence[WriteResult]:
        """Carry out the plan, and wait until that is done."""
        sending = self.live.order(plan)
        assert sending.wait(PATIENCE_SECONDS)
        return sending.results()

    def settle(self, name: str) -> None:
        """Reports need not wait any more."""
        assert self.server.get(r.BIND_REQUESTS, "ns", name) is not None
        self.writer.busy = lambda: False

    def close(self) -> None:
        self.cache.stop()
        self.live.close()
        self.writer.stop()


@pytest.fixture
def setup(server: StubServer) -> Iterator[Setup]:
    """Four pods, a node, a queue, a group."""
    for i in range(4):
        server.put(r.PODS, pod(f"p{i}"))
    server.put(r.NODES, node("n"))
    server.put(r.QUEUES, queue())
    server.put(r.POD_GROUPS, group())
    made = Setup(server)
    yield made
    made.close()
