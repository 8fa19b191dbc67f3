"""The page as the scheduler serves it, in a real Chromium; and the file that ``kai-cp view`` writes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from kai_cp.kube.scheduler.view_routes import LastView, view_routes
from kai_cp.kube.serving.http import HttpServer, Response, as_json
from kai_cp.kube.telemetry.cycles import CycleLog, CycleRecord
from kai_cp.reader import parse
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.test_cli import run
from tests.kai_cp.view.browser import chromium, installed
from tests.kai_cp.view.test_page import NOW, complaints, plan, text, world

DEMO = Path(__file__).parents[4] / "examples" / "demo-cluster.json"


@pytest.fixture
def log() -> CycleLog:
    return CycleLog()


@pytest.fixture(params=[False, True], ids=["named", "anonymized"])
def server(request: pytest.FixtureRequest, log: CycleLog) -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1:0", view_routes(LastView(log, "observe", anonymize=request.param)))
    made.start()
    yield made
    made.stop()


def add_cycle(log: CycleLog, number: int = 1) -> None:
    raw = world()
    seconds = {"snapshot": 0.1, "solve": 0.3}
    log.add(CycleRecord(number, NOW, raw, parse(raw, now=NOW), plan(), [], seconds, "hash"))


def get(server: HttpServer, path: str) -> tuple[int, bytes, dict[str, str]]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_SECONDS
        ) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_before_the_first_cycle_there_is_nothing_to_show(server: HttpServer) -> None:
    status, said, _ = get(server, "/view/data")
    assert (status, said) == (503, b"no cycle yet\n")


def test_only_its_own_paths_and_only_reading(server: HttpServer, log: CycleLog) -> None:
    add_cycle(log)
    assert get(server, "/")[0] == 200
    assert get(server, "/view/data")[0] == 200
    assert {get(server, path)[0] for path in ("/x", "/view", "/view/data/x", "/view/../etc")} == {404}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/view/data", b"{}", method=method)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=PATIENCE_SECONDS)


def test_no_other_page_may_show_or_read_it(server: HttpServer, log: CycleLog) -> None:
    add_cycle(log)
    for path in ("/", "/view/data"):
        headers = get(server, path)[2]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers
    assert "frame-ancestors 'none'" in get(server, "/")[2]["Content-Security-Policy"]


EXPLAINED = {
    "explanations": [
        {
            "podGroup": "ns/w",
            "noFix": [],
            "fixes": [
                {
                    "kind": "clear-backoff",
                    "ops": [{"op": "clear-backoff"}],
                    "least": "proved",
                    "starts": "now",
                    "lose": ["ns/r"],
                },
            ],
        }
    ]
}


def explain(parameters: Mapping[str, str]) -> Response:
    """Plays ``/explain``."""
    if parameters.get("podGroup") != "ns/w":
        return Response(b"there is no such pod group\n", status=404)
    return as_json(EXPLAINED)


@pytest.mark.skipif(not installed(), reason="there is no Chromium; `make system-packages` installs it")
@pytest.mark.xdist_group("browser")
def test_the_page_asks_the_scheduler_what_would_help(log: CycleLog) -> None:
    add_cycle(log)
    last = LastView(log, "observe", anonymize=False, asks=True)
    server = HttpServer("127.0.0.1:0", view_routes(last, explain))
    server.start()
    try:
        status, said, _ = get(server, "/view/fixes?podGroup=ns/w")
        assert status == 200
        assert json.loads(said)["fixes"] == ["clear its scheduling backoff -> starts now; ns/r would lose"]
        assert get(server, "/view/fixes?podGroup=ns/x")[0] == 404
        with chromium() as browser:
            browser.get(f"http://127.0.0.1:{server.port}/#pending")
            WebDriverWait(browser, PATIENCE_SECONDS).until(
                lambda b: b.find_elements(By.CSS_SELECTOR, "button.small")
            )
            browser.find_element(By.CSS_SELECTOR, "button.small").click()
            WebDriverWait(browser, PATIENCE_SECONDS).until(
                lambda b: "clear its scheduling backoff" in text(b)
            )
            assert complaints(browser) == []
    finally:
        server.stop()


@pytest.mark.skipif(not installed(), reason="there is no Chromium; `make system-packages` installs it")
@pytest.mark.xdist_group("browser")
def test_the_scheduler_serves_the_last_cycle(server: HttpServer, log: CycleLog) -> None:
    add_cycle(log, 1)
    add_cycle(log, 2)
    with chromium() as browser:
        browser.get(f"http://127.0.0.1:{server.port}/#cycles")
        WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b: not b.find_elements(By.ID, "loading"))
        said = text(browser)
        assert [
            words for words in ("cycle 2", "mode observe", "Last cycles", "0.40 s") if words not in said
        ] == []
        links = [a.get_attribute("href") for a in browser.find_elements(By.CSS_SELECTOR, "td a")]
        assert f"http://127.0.0.1:{server.port}/debug/cycles/2" in links
        assert complaints(browser) == []


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    done = run("solve", DEMO, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer.write_text(done.stdout)
    page = tmp_path / "page.html"
    done = run("view", DEMO, answer, "--output", page)
    assert done.returncode == 0, done.stderr
    assert str(page) in done.stdout
    shown = page.read_text("utf-8")
    assert '"decided":true' in shown
    assert "http://" not in shown.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere.json"], 1, "nowhere.json"),
        ([DEMO, "nowhere.json"], 1, "nowhere.json"),
        ([DEMO, "--undecided", DEMO], 2, "exclude"),
        ([DEMO, "--undecided", "--explained", DEMO], 2, "no explanation/1"),
        (["-"], 1, "it is empty"),
        ([DEMO, "--undecided", "--output", "/nowhere/page.html"], 2, "/nowhere/page.html"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[Any], status: int, said: str) -> None:
    done = run("view", *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_decisions_that_are_none_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"schema": "other/1"}))
    done = run("view", DEMO, wrong)
    assert done.returncode == 1
    assert "wrong.json" in done.stderr
