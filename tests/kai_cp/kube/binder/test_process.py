"""The process of the binder: nodes whose reservations could not be made right are tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kai_cp.kube.api.errors import NotReachable
from kai_cp.kube.api.store import Store
from kai_cp.kube.binder import process
from kai_cp.kube.serving.process import Lifecycle
from tests.kai_cp.kube.samples import pod


class Failing:
    """Reservations of which the first sync fails; the second ends the process."""

    def __init__(self, failure: Exception, life: Lifecycle) -> None:
        self._failures = [failure]
        self._life = life
        self.synced: list[str] = []

    def watch_departures(self, sync: Callable[[str], None]) -> None:
        """No pod leaves."""

    def sync(self, node: str) -> None:
        """Fail once, then end."""
        self.synced.append(node)
        if self._failures:
            raise self._failures.pop()
        self._life.end()


@pytest.mark.parametrize("failure", [NotReachable("no answer"), KeyError("podName")])
def test_a_node_whose_sync_fails_is_synced_again(failure: Exception) -> None:
    pods, life = Store(), Lifecycle()
    pods.put(pod("p", node="n"))
    reservations = Failing(failure, life)
    process.sync_nodes(reservations, pods, life)  # type: ignore[arg-type]
    assert reservations.synced == ["n", "n"]
