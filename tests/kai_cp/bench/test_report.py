"""Pages of results fit any screen: what is wide scrolls by itself, and long names make no page wider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from kai_cp.bench.records import CaseResult
from kai_cp.bench.report import page
from kai_cp.bench.table import answered
from kai_cp.tune.compare import html
from kai_cp.tune.measure import Measured
from tests.hostile.test_result_pages import RESULTS
from tests.kai_cp.view.browser import chromium, installed

pytestmark = pytest.mark.skipif(
    not installed(), reason="there is no Chromium; `make system-packages` installs it"
)
LONG = "cluster-with-a-very-long-name-as-pipelines-generate-them-2026-11-20-run-000123456789"


@pytest.fixture(scope="module")
def narrow() -> Iterator[Chrome]:
    with chromium() as browser:
        # A window of its own has at least 500 pixels.
        screen = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        yield browser


def tuned() -> str:
    configs = [f"{LONG}-{i}.yaml" for i in range(3)]
    results = {LONG: {name: Measured({"admitted": 1.0}, {}) for name in configs}}
    return html(results, configs, {name: {LONG: {LONG: name}} for name in configs})


def measured() -> str:
    named = {"case": LONG, "suite": LONG, "policy": LONG}
    return page(
        [one.model_copy(update={k: v for k, v in named.items() if hasattr(one, k)}) for one in RESULTS]
    )


@pytest.mark.parametrize("made", [measured, tuned])
def test_no_page_is_wider_than_the_window(narrow: Chrome, tmp_path: Path, made: object) -> None:
    assert callable(made)
    path = tmp_path / "page.html"
    path.write_text(made(), "utf-8")
    narrow.get(path.as_uri())
    said = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    width, room = narrow.execute_script(said)
    assert width <= room <= 400


def test_the_page_tells_an_answer_in_the_words_of_the_terminal() -> None:
    made = page(RESULTS)
    assert ">answer</th>" in made
    cases = [one for one in RESULTS if isinstance(one, CaseResult)]
    assert cases
    assert all(f">{answered(one)}<" in made for one in cases)
