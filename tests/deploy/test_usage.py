"""Historic usage from a real Prometheus with a known past: windows, half-life, several exporters, absence."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_cp.kube.demo.controlplane import free_port
from kai_cp.kube.scheduler.usage import UsageClient, usage_options
from tests.deploy.test_monitoring import asked
from tests.kai_cp.kube.conftest import until

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="there is no Prometheus; `make system-packages` installs it"
)
MINUTE = 60
HOURS = 8
GPUS = 100.0


def held(queue: str, hours_ago: float) -> float:
    """GPUs that a queue held: ``steady`` always 25, ``early`` 50 until two hours ago, ``late`` 50 since
    then.
    """
    if queue == "steady":
        return 25.0
    return 50.0 if (hours_ago > 2) == (queue == "early") else 0.0


def past(now: float) -> str:
    """Eight hours as OpenMetrics, one sample a minute; two controllers export the same."""
    begin = int(now) - HOURS * 3600
    stamps = range(begin, int(now) + 1, MINUTE)
    lines = ["# TYPE kai_queue_allocated_gpus gauge"]
    for pod in ("a", "b"):
        for queue in ("steady", "early", "late"):
            lines += [
                f'kai_queue_allocated_gpus{{queue_name="{queue}",pod="{pod}"}} '
                f"{held(queue, (now - at) / 3600)} {at}"
                for at in stamps
            ]
    lines.append("# TYPE kube_node_status_capacity gauge")
    for node in ("n1", "n2"):
        lines += [
            f'kube_node_status_capacity{{resource="nvidia_com_gpu",node="{node}"}} {GPUS / 2} {at}'
            for at in stamps
        ]
    return "\n".join([*lines, "# EOF", ""])


class Server:
    """A Prometheus process that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.folder / "prometheus.yaml").write_text("{}\n")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + 60
        while not asked(self.address, "vector(1)"):
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


@pytest.fixture(scope="module")
def now() -> float:
    """The end of the recorded past: a full minute, a while ago."""
    return float(int(time.time()) // MINUTE * MINUTE - 5 * MINUTE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, now: float) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("usage")
    (folder / "past").write_text(past(now))
    create = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(folder / "past"),
        str(folder / "data"),
    ]
    subprocess.run(create, check=True, capture_output=True)
    made = Server(folder)
    made.start()
    yield made
    made.stop()


def client(server: Server, now: float, **params: Any) -> UsageClient:
    """A client for which it is ``now``."""
    config = {"clientType": "prometheus", "connectionString": server.address, "usageParams": params}
    options = usage_options(config)
    assert options is not None
    return UsageClient(options, clock=lambda: now, changed=lambda: None)


def rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_a_sliding_window_is_the_mean_of_what_was_held(server: Server, now: float) -> None:
    gpus = {queue: found["gpu"] for queue, found in client(server, now, windowSize="8h").fetch().items()}
    # early held 50 of 100 for 6 of 8 hours, late for 2; two exporters count once.
    assert gpus == pytest.approx({"steady": 0.25, "early": 0.375, "late": 0.125}, abs=0.005)
    short = {queue: found["gpu"] for queue, found in client(server, now, windowSize="1h").fetch().items()}
    assert short == pytest.approx({"steady": 0.25, "early": 0.0, "late": 0.5}, abs=0.01)


def test_old_usage_counts_less_with_a_half_life(server: Server, now: float) -> None:
    half_life = 3600.0
    found = client(server, now, windowSize="8h", halfLifePeriod="1h").fetch()
    weights = {queue: 0.0 for queue in ("steady", "early", "late")}
    whole = 0.0
    for minute in range(HOURS * 60):
        weight = 0.5 ** (minute * MINUTE / half_life)
        whole += weight * GPUS
        for queue in weights:
            weights[queue] += weight * held(queue, minute / 60)
    expected = {queue: value / whole for queue, value in weights.items()}
    assert {queue: entry["gpu"] for queue, entry in found.items()} == pytest.approx(expected, abs=0.01)
    assert found["late"]["gpu"] > found["early"]["gpu"]


def test_tumbling_and_cron_windows_begin_at_their_last_reset(server: Server, now: float) -> None:
    start = rfc3339(now - 3 * 3600 - 8 * 3600)
    params = {"windowType": "tumbling", "windowSize": "8h", "tumblingWindowStartTime": start}
    tumbling = client(server, now, **params).fetch()
    # Three hours of this window: early held for one of them, late for two.
    expected = {"steady": 0.25, "early": 0.5 / 3, "late": 1.0 / 3}
    assert {q: entry["gpu"] for q, entry in tumbling.items()} == pytest.approx(expected, abs=0.01)
    reset = time.gmtime(now - 3 * 3600)
    cron = client(server, now, windowType="cron", cronString=f"{reset.tm_min} {reset.tm_hour} * * *").fetch()
    assert {q: entry["gpu"] for q, entry in cron.items()} == pytest.approx(expected, abs=0.01)


def test_a_resource_without_capacity_voids_itself_only(server: Server, now: float) -> None:
    found = client(server, now, windowSize="1h").fetch()
    assert set(found["steady"]) == {"gpu"}


def test_the_last_figures_stay_while_prometheus_is_away(server: Server, now: float) -> None:
    options = usage_options(
        {
            "clientType": "prometheus",
            "connectionString": server.address,
            "usageParams": {"windowSize": "8h", "fetchInterval": "100ms", "stalenessPeriod": "1s"},
        }
    )
    assert options is not None
    changes: list[int] = []
    began = time.monotonic()
    usage = UsageClient(
        options, clock=lambda: now + time.monotonic() - began, changed=lambda: changes.append(1)
    )
    usage.start()
    try:
        first = usage()
        assert first is not None
        assert first["steady"]["gpu"] == pytest.approx(0.25, abs=0.01)
        server.stop()
        until(lambda: usage.age() >= 2)
        assert usage() is not None, "and the figures are used on"
        server.start()
        until(lambda: usage.age() <= 1)  # It is asked again.
    finally:
        usage.stop()
