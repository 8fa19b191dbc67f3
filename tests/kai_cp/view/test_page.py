"""The page in a real Chromium: its text, its safety, and its keyboard use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from kai_cp.documents import problems
from kai_cp.reader import parse
from kai_cp.view.data import view
from kai_cp.view.page import page
from kai_cp_models.plan import Decision, Plan, Reservation, Stage, Unscheduled
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.settings import Settings
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot
from tests.kai_cp.view.browser import chromium, installed
from tests.kai_cp.view.large import document as large_document

pytestmark = [
    pytest.mark.skipif(not installed(), reason="there is no Chromium; `make system-packages` installs it"),
    pytest.mark.xdist_group("browser"),
]
NOW = 1_800_000_000.0
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
VIEWS = ("queues", "pending", "cluster", "time", "cycles", "evictions")
CURRENT = (By.CSS_SELECTOR, "nav [aria-current=page]")
"""The view that is shown."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


def world() -> dict[str, Any]:
    """Two racks; v is evicted for t, which is nominated; w waits; some names try to be markup."""
    nodes = [node(f"n{i}", gpus=4) for i in range(4)]
    for i, item in enumerate(nodes):
        item["metadata"]["labels"] |= {"rack": f"r{i // 2}", "kubernetes.io/hostname": f"n{i}"}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    return snapshot(
        nodes=nodes,
        pods=[
            pod("v-0", "v", gpus=4, node="n0", phase="Running"),
            pod("r-0", "r", gpus=2, node="n1", phase="Running"),
            pod("t-0", "t", gpus=4),
            pod("w-0", "w", gpus=4),
        ],
        queues=[queue()],
        podGroups=[group("v"), group("r"), group("t"), group("w")],
        topologies=[{"metadata": {"name": "hall", "uid": "t"}, "spec": {"levels": levels}}],
    )


def plan(message: str = "no room") -> Plan:
    t, w = GroupKey("ns", "t"), GroupKey("ns", "w")
    return Plan(
        decisions=(
            Decision("Evict", PodKey("ns", "v-0"), GroupKey("ns", "v"), "n0", "reclaim", triggers=(t,)),
            Decision("Nominate", PodKey("ns", "t-0"), t, "n0", "reclaim"),
        ),
        unscheduled=(Unscheduled(w, "OverLimit", message, True),),
        stages=(Stage("reclaim", "lost work", "OPTIMAL", 1, 1, 0.0),),
    )


def ahead(name: str = "cluster") -> dict[str, Any]:
    """w holds n2 and n3 in an hour, for two hours; r ends in half an hour; the end of v is not known."""
    raw = world()
    notes = {"r": "30m", "w": "2h"}
    for item in raw["rawObjects"]["podGroups"]:
        said = notes.get(item["metadata"]["name"])
        if said is not None:
            item["metadata"]["annotations"] = {"kai-cp/expected-runtime": said}
    hold = Reservation(
        GroupKey("ns", "w"),
        "q",
        "later",
        start=NOW + 3600,
        promised=NOW + 1800,
        nodes={"n2": 4.0, "n3": 2.0},
        cause="NodeLost",
        message="now from 09:00",
    )
    made = replace(plan(), decisions=(), reservations=(hold,))
    settings = Settings.model_validate({"reservations": {"enabled": True}})
    return view(name, parse(raw, now=NOW), made, settings=settings)


def document(message: str = "no room", name: str = "cluster") -> dict[str, Any]:
    return view(name, parse(world(), now=NOW), plan(message))


def opened(browser: Chrome, tmp_path: Path, made: dict[str, Any], at: str = "queues") -> str:
    """Show the page in a view; returns all its text."""
    path = tmp_path / "page.html"
    path.write_text(page(made), "utf-8")
    browser.get("about:blank")
    browser.get(f"{path.as_uri()}#{at}")
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b: not b.find_elements(By.ID, "loading"))
    return text(browser)


def text(browser: Chrome) -> str:
    return str(browser.find_element(By.TAG_NAME, "body").text)


def complaints(browser: Chrome) -> list[Any]:
    """Errors and refused resources in the console."""
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("queues", ["q", "Fair share", "Borrowed"]),
        ("pending", ["2 ns/w", "OverLimit", "no room", "proved"]),
        ("cluster", ["r0", "r1", "ns/t", "2 of 8 free", "GPUs"]),
        ("time", ["Nothing is planned ahead"]),
        ("cycles", ["ns/t", "when free", "reclaim: lost work", "OPTIMAL"]),
        ("evictions", ["v-0", "back to pending", "ns/t", "GPUs lost"]),
    ],
)
def test_each_view_answers_its_question(browser: Chrome, tmp_path: Path, at: str, said: list[str]) -> None:
    shown = opened(browser, tmp_path, document(), at)
    assert [words for words in said if words not in shown] == []
    assert complaints(browser) == []


def test_the_legend_tells_what_belongs_to_no_queue_and_one_of_a_thing_is_told_as_one(
    browser: Chrome, tmp_path: Path
) -> None:
    foreign = pod("f-0", gpus=2, node="n2", phase="Running")
    foreign["spec"]["schedulerName"] = "default-scheduler"
    raw = world()
    raw["rawObjects"]["pods"].append(foreign)
    said = opened(browser, tmp_path, view("cluster", parse(raw, now=NOW), plan()), "cluster")
    assert "another scheduler's" in said
    assert "another scheduler's" not in opened(browser, tmp_path, document(), "cluster")
    assert "1\npod evicted" in opened(browser, tmp_path, document(), "evictions")
    opened(browser, tmp_path, document(), "queues")
    assert all(button.text for button in browser.find_elements(By.CSS_SELECTOR, "th button"))


def test_an_eviction_has_a_sentence_only_where_it_is_for_no_other_group(
    browser: Chrome, tmp_path: Path
) -> None:
    """Beside a group that it is for, the sentence repeated the columns By and For."""
    made = document()
    made["evictions"][0]["message"] = "reclaimed for ns/t"
    made["evictions"] += [made["evictions"][0] | {"for": [], "message": "ran for longer than 1h"}]
    shown = opened(browser, tmp_path, made, "evictions")
    assert "ran for longer than 1h" in shown
    assert "reclaimed for" not in shown


def test_one_pod_starts_and_one_pod_group_stays_pending(browser: Chrome, tmp_path: Path) -> None:
    said = opened(browser, tmp_path, document())
    assert "1 pod starts, 1 pod evicted, 1 pod group stays pending" in said


def test_a_page_says_at_the_top_which_rules_its_decisions_break(browser: Chrome, tmp_path: Path) -> None:
    made = view("c", parse(world(), now=NOW), plan(), broken=[f"capacity: n0 {EVIL}", "and 3 more"])
    assert problems("view/1", json.loads(json.dumps(made))) == []
    for at in VIEWS:
        shown = opened(browser, tmp_path, made, at)
        assert shown.index("These decisions break rules:") < shown.index(f"capacity: n0 {EVIL}")
        assert "and 3 more" in shown
    assert "break" not in opened(browser, tmp_path, document())


def test_nodes_over_time_are_numbers_and_places() -> None:
    made = ahead()
    assert problems("view/1", json.loads(json.dumps(made))) == []
    # Groups by name: r, t, v, w. r and v run, w holds: 0 runs, 2 is reserved.
    assert sorted(made["time"]["bars"]) == [
        [0, 2, 4, 0, None, 0],
        [1, 0, 2, 0, 1800, 0],
        [2, 3, 4, 3600, 10800, 2],
        [3, 3, 2, 3600, 10800, 2],
    ]
    (entry,) = made["time"]["starts"]
    assert (entry["start"], entry["promised"], entry["gpus"], entry["cause"]) == (3600, 1800, 6, "NodeLost")


def test_nodes_over_time_are_drawn_to_scale(browser: Chrome, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, ahead(), "time")
    assert "later (NodeLost)" in shown
    lanes = browser.find_elements(By.CSS_SELECTOR, ".gantt .lane")
    # Nodes that are held come first.
    assert [str(lane.get_attribute("aria-label")).split(":")[0] for lane in lanes] == ["n2", "n3", "n0", "n1"]
    whole, half = (lane.find_element(By.CSS_SELECTOR, ".reserved").size for lane in lanes[:2])
    assert half["height"] == pytest.approx(whole["height"] / 2, abs=1)
    # r runs for half an hour, and w has its nodes for two hours.
    runs = lanes[3].find_element(By.CSS_SELECTOR, ".runs").size
    assert whole["width"] == pytest.approx(4 * runs["width"], rel=0.05)
    assert lanes[2].find_elements(By.CSS_SELECTOR, ".runs.open") != []
    assert len(browser.find_elements(By.CSS_SELECTOR, ".gantt .grid")) > 2


def test_pictures_say_the_common_end_of_node_names_once(browser: Chrome, tmp_path: Path) -> None:
    """Cut in the middle, names such as ip-10-0-101-7.eu-central-1.compute.internal were all the same."""
    made = ahead()
    for entry in made["nodes"]:
        entry["name"] += ".eu-central-1.compute.internal"
    assert "nodes end in .eu-central-1.compute.internal" in opened(browser, tmp_path, made, "time")
    lane = browser.find_element(By.CSS_SELECTOR, ".gantt .lane")
    assert "n2" in [label.text for label in lane.find_elements(By.TAG_NAME, "text")]
    assert str(lane.get_attribute("aria-label")).startswith("n2.eu-central-1.compute.internal: ")
    assert "nodes end in .eu-central-1.compute.internal" in opened(browser, tmp_path, made, "cluster")
    assert "nodes end in" not in opened(browser, tmp_path, ahead(), "cluster")


def test_racks_over_time_and_what_a_search_leaves(browser: Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, ahead(), "time?over=0.0")
    lanes = browser.find_elements(By.CSS_SELECTOR, ".gantt .lane")
    assert [str(lane.get_attribute("aria-label")).split(":")[0] for lane in lanes] == ["r1", "r0"]
    # What w holds on two nodes of the rack is one bar.
    assert len(lanes[0].find_elements(By.CSS_SELECTOR, ".reserved")) == 1
    opened(browser, tmp_path, ahead(), "time?q=n1")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".gantt .lane")) == 1


def test_lines_are_read_with_the_keyboard(browser: Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, ahead(), "time")
    browser.execute_script("document.querySelector('.gantt .lane').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert "n3: held for ns/w, 2 GPUs from " in browser.find_element(By.ID, "hover").text
    assert len(browser.find_elements(By.CSS_SELECTOR, ".lane[tabindex='0']")) == 1


def test_before_and_after_are_two_links(browser: Chrome, tmp_path: Path) -> None:
    # v holds all of n0 before, and t after: the cells of the first node change.
    before = opened(browser, tmp_path, document(), "cluster?at=before")
    after = opened(browser, tmp_path, document(), "cluster?at=after")
    assert "ns/v" in before
    assert "ns/t" not in before
    assert "ns/t" in after
    assert "ns/v" not in after


def test_a_search_is_a_link_and_leaves_what_matches(browser: Chrome, tmp_path: Path) -> None:
    assert "OverLimit" in opened(browser, tmp_path, document(), "pending?q=overlimit")
    assert "Nothing matches" in opened(browser, tmp_path, document(), "pending?q=nobody")


def test_names_are_text_and_never_markup(browser: Chrome, tmp_path: Path) -> None:
    made = document(EVIL, EVIL)
    made["nodes"][0]["name"] = EVIL
    made["groups"] = [{**entry, "name": EVIL, "queue": EVIL} for entry in made["groups"]]
    made["queues"][0]["name"] = EVIL
    made["time"] = ahead()["time"]
    made["time"]["starts"][0] |= {"nodes": [EVIL], "message": EVIL, "cause": EVIL, "state": EVIL}
    made["evictions"][0]["pod"] = made["starts"][0]["nodes"][0] = EVIL
    made["skipped"] = [{"item": EVIL, "reason": "</script><script>document.title='owned'</script>"}]
    for at in VIEWS:
        assert EVIL in opened(browser, tmp_path, made, at), at
        assert browser.title != "owned"
        assert browser.find_elements(By.CSS_SELECTOR, "main img, main script, header img") == []
        assert complaints(browser) == []


def test_the_policy_refuses_what_is_not_the_page_itself(browser: Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, document())
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = \"document.title='owned'\";"
        "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x';"
        "document.body.append(i);"
    )
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b: len(complaints(b)) >= 1)
    assert browser.title != "owned"


def test_the_keyboard_is_enough(browser: Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, document())
    body = browser.find_element(By.TAG_NAME, "body")
    for number, at in enumerate(VIEWS, 1):
        body.send_keys(str(number))
        WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b, at=at: b.current_url.endswith(f"#{at}"))
        # The address changes before the page is drawn anew.
        WebDriverWait(browser, PATIENCE_SECONDS, ignored_exceptions=[StaleElementReferenceException]).until(
            lambda b, at=at: b.find_element(*CURRENT).text.lower().startswith(at)
        )
    body.send_keys("2")
    body.send_keys("/")
    search = browser.switch_to.active_element
    assert search.get_attribute("id") == "search"
    search.send_keys("nobody")
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b: "Nothing matches" in text(b))
    search.send_keys(Keys.ESCAPE)
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda b: "OverLimit" in text(b))


def test_light_and_dark(browser: Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, document())
    body = browser.find_element(By.TAG_NAME, "body")
    one = body.value_of_css_property("background-color")
    body.send_keys("d")
    WebDriverWait(browser, PATIENCE_SECONDS).until(
        lambda b: body.value_of_css_property("background-color") != one
    )


@pytest.mark.parametrize("at", VIEWS)
def test_a_phone_needs_no_sideways_scrolling(tmp_path: Path, at: str) -> None:
    with chromium(500, 900) as narrow:
        narrow.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
        )
        made = {**document("a long message " * 20), "time": ahead()["time"]}
        opened(narrow, tmp_path, made, at)
        assert narrow.execute_script("return document.documentElement.scrollWidth") <= 390


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    return large_document()


@pytest.mark.parametrize("at", VIEWS)
def test_a_large_cluster_costs_what_is_shown(
    browser: Chrome, tmp_path: Path, large: dict[str, Any], at: str
) -> None:
    """5,000 nodes and 50,000 pods: a file of a few MiB, and no element for what is not visible."""
    assert (len(large["nodes"]), sum(entry["pods"] for entry in large["groups"])) == (5_000, 50_000)
    assert len(page(large)) < 4 * 2**20
    opened(browser, tmp_path, large, at)
    assert browser.execute_script("return document.getElementsByTagName('*').length") < 8_000
    assert complaints(browser) == []


def test_a_large_cluster_draws_what_is_in_sight(
    browser: Chrome, tmp_path: Path, large: dict[str, Any]
) -> None:
    assert "5,000" in opened(browser, tmp_path, large, "cluster")
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('canvas')].filter((c) => c.width !== 300).length"
    )
    assert 0 < drawn < len(browser.find_elements(By.TAG_NAME, "canvas"))
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 200


def test_the_page_lists_fixes(browser: Chrome, tmp_path: Path) -> None:
    told = {"fixes": ["stop ns/r -> starts now", EVIL], "note": "not tried within the budget: move"}
    made = view("c", parse(world(), now=NOW), plan(), fixes={"ns/w": told})
    shown = opened(browser, tmp_path, made, "pending")
    assert "stop ns/r -> starts now" in shown
    assert "not tried within the budget: move" in shown
    assert EVIL in shown
    assert browser.find_elements(By.CSS_SELECTOR, "main img, main script") == []
    made = view("c", parse(world(), now=NOW), plan(), fixes={"ns/w": {"fixes": [], "note": "none was tried"}})
    assert "Fixes: none was tried" in opened(browser, tmp_path, made, "pending")


def test_the_document_is_published_json_and_holds_no_pod_twice() -> None:
    made = json.loads(json.dumps(document()))
    assert made["schema"] == "view/1"
    assert made["cells"] == [[2] * 4, [0, 0, -1, -1], [-1] * 4, [-1] * 4]
    assert made["cellsAfter"] == {"0": [1] * 4}
    assert [(entry["group"], entry["position"]) for entry in made["pending"]] == [(3, 2)], "t comes before w"
    with_fixes = view("c", parse(world(), now=NOW), plan(), fixes={"ns/w": {"fixes": ["wait"], "note": ""}})
    undecided = view("c", parse(world(), now=NOW), None)
    for shown in (made, with_fixes, undecided):
        assert problems("view/1", json.loads(json.dumps(shown))) == []
