"""Historic usage: windows, queries and answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import orjson
import pytest

from kai_cp.kube.scheduler.options import BadConfiguration
from kai_cp.kube.scheduler.usage import UsageClient, query, usage_options, window_seconds
from kai_cp.kube.scheduler.windows import last_cron, last_tumbling
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until

NOW = datetime(2026, 11, 18, 10, 30, tzinfo=UTC).timestamp()  # a Wednesday


class Prometheus:
    """Answers every allocation metric with two queues, and every capacity with 100."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False
        self.breaks_off = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                expression = parse_qs(body.decode())["query"][0]
                outer.asked.append(expression)
                queues = {"a": "25", "b": "50"} if "allocated" in expression else {"": "100"}
                result = [
                    {"metric": {"queue_name": name} if name else {}, "value": [NOW, value]}
                    for name, value in queues.items()
                ]
                data = b"?" if outer.broken else orjson.dumps({"data": {"result": result}})
                self.send_response(200)
                self.send_header("Content-Length", str(len(data) + 100 * outer.breaks_off))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    made = Prometheus()
    yield made
    made.server.shutdown()
    made.server.server_close()


def config(address: str = "http://p", **params: Any) -> dict[str, Any]:
    return {"clientType": "prometheus", "connectionString": address, "usageParams": params}


def test_off_unless_configured() -> None:
    assert usage_options(None) is None
    assert usage_options({}) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"clientType": "influx", "connectionString": "x"},
        {"clientType": "prometheus"},
        config(windowType="hopping"),
        config(fetchInterval="soon"),
        config(windowSize="long"),
        config(windowType="cron", cronString="never"),
    ],
)
def test_bad_configuration(bad: dict[str, Any]) -> None:
    with pytest.raises(BadConfiguration, match="usageDBConfig"):
        usage_options(bad)


def test_usage_is_the_share_of_the_window(prometheus: Prometheus) -> None:
    options = usage_options(config(prometheus.address))
    assert options is not None
    client = UsageClient(options, clock=lambda: NOW, changed=lambda: None)
    assert client.fetch() == {
        "a": {"gpu": 0.25, "cpu": 0.25, "memory": 0.25},
        "b": {"gpu": 0.5, "cpu": 0.5, "memory": 0.5},
    }
    assert "sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[604800s:1m])" in prometheus.asked


def test_the_last_answer_serves_and_news_wake_the_loop(prometheus: Prometheus) -> None:
    options = usage_options(config(prometheus.address, fetchInterval="50ms", waitTimeout="5s"))
    assert options is not None
    woken = threading.Event()
    client = UsageClient(options, clock=lambda: NOW, changed=woken.set)
    client.start()
    assert woken.wait(PATIENCE_SECONDS)
    prometheus.broken = True
    usage = client()
    assert usage is not None
    assert usage["b"]["gpu"] == 0.5
    client.stop()


def test_answers_that_break_off_are_asked_for_again(prometheus: Prometheus) -> None:
    options = usage_options(config(prometheus.address, fetchInterval="50ms", waitTimeout="0s"))
    assert options is not None
    woken = threading.Event()
    client = UsageClient(options, clock=lambda: NOW, changed=woken.set)
    prometheus.breaks_off = True
    client.start()
    until(lambda: len(prometheus.asked) > 2)
    prometheus.breaks_off = False
    assert woken.wait(PATIENCE_SECONDS)
    client.stop()


def test_half_life_weighs_numerator_and_denominator() -> None:
    options = usage_options(config(halfLifePeriod="24h", extraParams={"queryResolution": "5m"}))
    assert options is not None
    expression = query(options, "m", 1000.0)
    assert expression == "sum_over_time(((m) * (0.5 ^ ((1000 - time()) / 86400)))[604800s:5m])"


def test_windows_since_the_last_reset() -> None:
    tumbling = usage_options(
        config(windowType="tumbling", windowSize="1d", tumblingWindowStartTime="2026-11-01T06:00:00Z")
    )
    assert tumbling is not None
    assert window_seconds(tumbling, NOW) == 4.5 * 3600
    cron = usage_options(config(windowType="cron", cronString="0 0 * * 1"))
    assert cron is not None
    assert window_seconds(cron, NOW) == (2 * 24 + 10.5) * 3600


def test_a_window_that_has_not_begun() -> None:
    assert last_tumbling(NOW + 5, 60.0, NOW) == NOW


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 10 * * *", datetime(2026, 11, 18, 10, 30)),
        ("31 10 * * *", datetime(2026, 11, 17, 10, 31)),
        ("0 0 1 * *", datetime(2026, 11, 1)),
        ("*/15 9-10 * * *", datetime(2026, 11, 18, 10, 30)),
        ("0 12 * * 0,7", datetime(2026, 11, 15, 12)),
        ("0 0 1 1 *", datetime(2026, 1, 1)),
        ("0 0 15 * 1", datetime(2026, 11, 16)),
        ("0 0 29 2 *", datetime(2024, 2, 29)),
    ],
)
def test_cron(expression: str, expected: datetime) -> None:
    assert last_cron(expression, NOW) == expected.replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "61 * * * *", "a * * * *", "0 0 31 2 *", "5-1 * * * *"]
)
def test_bad_cron(expression: str) -> None:
    with pytest.raises(ValueError, match="cron"):
        last_cron(expression, NOW)
