"""``/explain`` and ``/what-if`` over HTTP: documents, refusals with a sentence, and one answer at a time."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kai_cp.explain import service
from kai_cp.explain.tasks import ExplainTask, WhatIfTask
from kai_cp.kube.scheduler import explaining as module
from kai_cp.kube.scheduler.explaining import MOST_TRIES, Explaining, remedy, told
from kai_cp.kube.serving.http import HttpServer, Query
from kai_cp.kube.telemetry.cycles import CycleLog, CycleRecord
from kai_cp.reader import parse
from kai_cp.worker import Channel, Reply, Worker, WorkerJob
from kai_cp_models.engine import decide
from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import GroupKey
from tests.kai_cp.explain.clusters import cluster
from tests.support import objects as raw
from tests.support.plans import UNHURRIED
from tests.support.tiny import node, pod, queue

NOW = raw.NOW.timestamp()


def full_cluster() -> raw.Object:
    """One node of 8 GPUs, held by a job that cannot be preempted, and a job that waits for it."""
    pods = [pod("hog", "n0", gpus=8), pod("x", gpus=8)]
    spec: dict[str, Any] = {"minMember": 1, "queue": "q"}
    groups = [
        raw.group("default", "hog", 900, {**spec, "preemptibility": "non-preemptible"}, {}),
        raw.group("default", "x", 600, {**spec, "preemptibility": "preemptible"}, {}),
    ]
    return raw.snapshot(
        raw.config("allocate, reclaim, preempt", spread=False, minruntime={}, proportion={}),
        {},
        {
            "nodes": [node("n0", {"cpu": "64"}, gpus=8)],
            "queues": [queue("top", ""), queue("q")],
            "podGroups": groups,
            "pods": [{k: v for k, v in one.items() if k != "belongs"} for one in pods],
        },
    )


def log_of(cluster: raw.Object) -> CycleLog:
    """One cycle."""
    snapshot = parse(cluster, now=NOW)
    log = CycleLog()
    log.add(CycleRecord(1, NOW, cluster, snapshot, decide(snapshot, UNHURRIED), (), {}, "hash"))
    return log


@pytest.fixture(scope="module")
def explaining() -> Iterator[Explaining]:
    found = Explaining(log_of(full_cluster()), UNHURRIED)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def port(explaining: Explaining) -> Iterator[int]:
    server = HttpServer("127.0.0.1:0", explaining.routes())
    server.start()
    yield server.port
    server.stop()


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def post(port: int, question: object) -> tuple[int, str]:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    return ask(port, "POST", "/what-if", body, Content_Type="application/json")


def test_explains_what_waits(port: int) -> None:
    status, text = ask(port, "GET", "/explain?podGroup=default/x&kinds=stop")
    document = json.loads(text)
    (entry,) = document["explanations"]
    assert (status, document["schema"], entry["state"]) == (200, "explanation/1", "pending")
    assert entry["blocking"] == [["priority", "room:gpu"], ["non-preemptible", "room:gpu"]]
    assert [fix["kind"] for fix in entry["fixes"]] == ["stop"]


def test_answers_what_if(port: int) -> None:
    status, text = post(port, {"ops": [{"op": "add-nodes", "like": "n0", "count": 1}]})
    assert status == 200
    assert json.loads(text)["diff"]["gain"] == ["default/x"]


@pytest.mark.parametrize(
    ("path", "named"),
    [("/explain", "podGroup"), ("/explain?podGroup=default/y", "default/y"),
     ("/explain?podGroup=default/x&kinds=magic", "magic"), ("/explain?what=1", "podGroup")],
)  # fmt: skip
def test_wrong_questions_are_refused_with_a_sentence(port: int, path: str, named: str) -> None:
    status, text = ask(port, "GET", path)
    assert status == 400
    assert named in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (b"{", "not JSON"),
        ([], "object"),
        ({"opps": []}, "opps"),
        ({"ops": 3}, "ops"),
        ({"ops": [{"op": "explode"}]}, "explode"),
        ({"ops": [{"op": "add-nodes", "like": "n0", "count": 1_000_000}]}, "1,000,000 nodes"),
        ({"ops": [{"op": "add-nodes", "like": "n0", "count": 9_000}] * 9}, "at most"),
        ({"ops": [{"op": "drain", "nodes": ["n9"]}]}, "n9"),
        ({"ops": [{"op": "set-queue", "queue": "q", "field": "limit", "resource": "gpu"}]}, "set-queue"),
        ({"ops": [{"op": "cordon", "nodes": ["n0"]}] * 2_000}, "at most"),
        ({"ops": [], "most": 10**9}, "most"),
        ({"ops": [], "least": {"kind": "magic"}}, "magic"),
        ({"ops": [], "least": "nodes"}, "least"),
    ],
)
def test_hostile_bodies_are_refused_with_a_sentence(port: int, question: object, named: str) -> None:
    status, text = post(port, question)
    assert status == 400
    assert named in text
    assert "Traceback" not in text


def test_bodies_are_bounded_and_must_be_json(port: int) -> None:
    assert ask(port, "POST", "/what-if", b"{}", Content_Type="text/plain")[0] == 415
    assert ask(port, "POST", "/what-if", b"", Content_Type="application/json")[0] == 413
    assert ask(port, "POST", "/what-if", Content_Type="application/json", Content_Length="1000001")[0] == 413
    assert ask(port, "POST", "/explain?podGroup=default/x", b"{}")[0] == 405
    assert ask(port, "GET", "/what-if")[0] == 405
    assert ask(port, "GET", "/explain?podGroup=default/x", Host="evil.example")[0] == 421


def test_a_waiting_group_is_explained_once_and_its_condition_says_the_cheapest_fix(
    explaining: Explaining,
) -> None:
    entry = Unscheduled(GroupKey("default", "x"), "NodeFragmented", "no room", True)
    assert explaining.words(entry) == "no room"
    explaining.remember(entry, "needs 2 GPUs; 1 is free; would start if you uncordon n1")
    assert explaining.words(entry) == "needs 2 GPUs; 1 is free; would start if you uncordon n1"
    other = Unscheduled(entry.group, "OverLimit", "limit 8", True)
    assert explaining.words(other) == "limit 8"


FIRM: raw.Object = {"preemptibility": "non-preemptible"}
ONLY = {
    "stop": (
        [node("n0", gpus=8)],
        [pod("hog", "n0", gpus=8), pod("x", gpus=8)],
        "would start if you stop default/hog",
    ),
    "move": (
        [node("n0", gpus=4), node("n1", gpus=2)],
        [pod("r", "n0", gpus=1), pod("x", gpus=4)],
        "would start if you move default/r to n1",
    ),
    "add-nodes": (
        [node("n0", gpus=1)],
        [pod("x-0", gpus=1, group="x"), pod("x-1", gpus=1, group="x")],
        "would start if you add 1 node like n0",
    ),
}
"""By kind of the cheapest fix: nodes, pods, and the last sentence of the condition."""


@pytest.mark.parametrize("kind", sorted(ONLY))
def test_the_condition_says_the_cheapest_fix_of_whatever_kind(kind: str) -> None:
    nodes, pods, said = ONLY[kind]
    groups = {"x": {"minMember": sum(one["metadata"]["name"].startswith("x") for one in pods)}}
    log = log_of(cluster(nodes, pods, groups={"hog": FIRM, "r": FIRM} | groups))
    woken: list[bool] = []
    explaining = Explaining(log, UNHURRIED, wake=lambda: woken.append(True))
    try:
        explaining.explain_next()
    finally:
        explaining.stop()
    (entry,) = log.all()[-1].plan.unscheduled
    sentence, _, fix = explaining.words(entry).rpartition("; ")
    assert fix == said
    assert re.search(r"needs .*GPU.*free", sentence)
    assert woken == [True]


def test_a_late_explanation_is_tried_again_a_few_times_when_nothing_new_waits() -> None:
    explaining = Explaining(CycleLog(), UNHURRIED)
    x, y = (Unscheduled(GroupKey("default", name), "NodeFragmented", "no room", True) for name in "xy")
    asked = []
    while (entry := explaining.next_of([x, y])) is not None:
        asked.append(entry.group.name)
        explaining.remember(entry, "needs 2 GPUs; 1 is free" if asked == ["x", "y"] else "")
    assert asked == ["x", "y", "x", "x"]
    assert explaining.words(x) == "no room"
    # Another situation is tried again; what is explained once stays explained until then.
    changed = Unscheduled(x.group, "NodeFragmented", "less room", True)
    assert explaining.next_of([x, y]) is None
    assert explaining.next_of([changed, y]) is changed
    explaining.remember(changed, "needs 2 GPUs; none is free")
    assert explaining.next_of([changed, y]) is None


def test_groups_whose_messages_change_all_the_time_take_turns() -> None:
    explaining = Explaining(CycleLog(), UNHURRIED)
    asked = []
    for cycle in range(6):
        waiting = [
            Unscheduled(GroupKey(space, "g"), "NodeFragmented", f"{cycle} free in all", True)
            for space in ("aaa", "mmm", "zzz")
        ]
        entry = explaining.next_of(waiting)
        assert entry is not None
        explaining.remember(entry, "needs 9 GPUs")
        asked.append(entry.group.namespace)
    assert asked == ["aaa", "mmm", "zzz"] * 2


@pytest.mark.parametrize("end", ["late", "failed"])
def test_the_worker_is_asked_again_after_it_was_late_or_failed(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def run(worker: Worker, task: ExplainTask, deadline: float) -> Reply:
        asked.append(task.groups)
        return Reply(None, "late" if end == "late" else "failed")

    monkeypatch.setattr(Worker, "run", run)
    explaining = Explaining(log_of(full_cluster()), UNHURRIED)
    for _ in range(MOST_TRIES + 2):
        explaining.explain_next()
    assert asked == [("default/x",)] * MOST_TRIES


def test_remedy_is_the_first_fix() -> None:
    fix = {"kind": "uncordon", "ops": [{"op": "uncordon", "nodes": ["n1"]}], "starts": "now"}
    entry = {"podGroup": "team/x", "fixes": [fix]}
    assert remedy(entry) == "would start if you uncordon n1"
    assert remedy({"podGroup": "team/x", "fixes": []}) == ""
    assert told({**entry, "message": "no room"}) == "no room; would start if you uncordon n1"
    assert told({}) == ""


def hang(_task: object, _channel: Channel) -> None:
    """A job of the worker that never ends."""
    time.sleep(600)


def die(_task: object, _channel: Channel) -> None:
    """A job whose process dies, as it does when a solver runs out of memory."""
    os._exit(3)


def gorge(task: ExplainTask | WhatIfTask, channel: Channel) -> None:
    """A job that would allocate a terabyte for its answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "_explained", lambda _task: bytearray(1024**4))
        patch.setattr(service, "_answered", lambda _task: bytearray(1024**4))
        channel.answer(service.answer(task))


@contextlib.contextmanager
def answering(job: WorkerJob) -> Iterator[Explaining]:
    """Questions about the full cluster, answered by such a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "job", job)
        found = Explaining(log_of(full_cluster()), UNHURRIED)
    try:
        yield found
    finally:
        found.stop()


def both(explaining: Explaining) -> list[tuple[int, str]]:
    """The answers of ``/explain`` and ``/what-if``."""
    explain, what_if = explaining.routes()["/explain"], explaining.routes()["/what-if"]
    assert isinstance(explain, Query)
    assert isinstance(what_if, Query)
    assert explain.asked is not None
    assert what_if.posted is not None
    found = [explain.asked({"podGroup": "default/x"}), what_if.posted(b'{"ops": []}')]
    return [(one.status, one.body.decode()) for one in found if isinstance(one.body, bytes)]


def test_an_answer_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPLAIN_SECONDS", 0.05)
    monkeypatch.setattr(module, "WHAT_IF_SECONDS", 0.05)
    with answering(hang) as explaining:
        assert both(explaining) == [(504, "it took longer than 0.05 s\n")] * 2


def test_an_answer_has_the_memory_that_is_set() -> None:
    with answering(gorge) as explaining:
        assert both(explaining) == [(400, "it would need more memory than is allowed\n")] * 2


def test_a_process_that_dies_is_one_sentence_and_the_next_question_has_another() -> None:
    with answering(die) as explaining:
        assert both(explaining) == [(500, "it could not be worked out; the log says why\n")] * 2


def test_one_question_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    entered, released = threading.Event(), threading.Event()

    def run(_worker: Worker, task: ExplainTask, _deadline: float) -> Reply:
        asked.append(task)
        entered.set()
        released.wait(60)
        return Reply(None, "late")

    monkeypatch.setattr(module, "CONDITION_SECONDS", 0.0)
    monkeypatch.setattr(Worker, "run", run)
    explaining = Explaining(log_of(full_cluster()), UNHURRIED)
    first = threading.Thread(target=explaining.explain, args=({"podGroup": "default/x"},))
    first.start()
    try:
        assert entered.wait(60)
        assert both(explaining) == [(503, "another question is being answered; ask again\n")] * 2
        explaining.explain_next()
        assert len(asked) == 1
    finally:
        released.set()
        first.join()


def test_there_is_no_answer_before_the_first_cycle() -> None:
    assert both(Explaining(CycleLog(), UNHURRIED)) == [(503, "no cycle yet\n")] * 2


def test_questions_write_nothing() -> None:
    """The record of the cycle stays as it was, and the process that answers cannot reach a cluster."""
    cycles = log_of(full_cluster())
    before = json.dumps(cycles.all()[-1].raw)
    explaining = Explaining(cycles, UNHURRIED)
    try:
        assert [status for status, _ in both(explaining)] == [200, 200]
    finally:
        explaining.stop()
    assert json.dumps(cycles.all()[-1].raw) == before
    program = (
        "import sys, kai_cp.explain.tasks, kai_cp.explain.service, kai_cp_models.loaded;"
        "print([m for m in sys.modules if m.split('.')[0] == 'kubernetes' or m.startswith('kai_cp.kube')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_explanation_of_a_malformed_group_says_what_is_wrong() -> None:
    cluster = full_cluster()
    cluster["rawObjects"]["podGroups"][1]["spec"]["minMember"] = "many"
    explaining = Explaining(log_of(cluster), UNHURRIED)
    try:
        (status, text), _ = both(explaining)
    finally:
        explaining.stop()
    assert status == 400
    assert text.startswith("podgroup default/x is left out of all decisions: ")
    assert "minMember" in text


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (
            {"op": "stop", "pods": ["other/a", "team/b", "third/c"]},
            "stop team/b, 2 pods of other namespaces",
        ),
        ({"op": "remove", "podGroups": ["other/g"]}, "remove 1 pod group of other namespaces"),
        (
            {"op": "move", "moves": [{"pod": "team/b", "node": "n1"}, {"pod": "other/a", "node": "n2"}]},
            "move team/b to n1, 1 pod of other namespaces",
        ),
    ],
)
def test_a_condition_names_no_pod_of_another_namespace(op: dict[str, Any], words: str) -> None:
    fix = {"kind": op["op"], "ops": [op], "starts": "now"}
    assert remedy({"podGroup": "team/x", "fixes": [fix]}) == f"would start if you {words}"


def test_names_stay_hidden() -> None:
    hidden = Explaining(CycleLog(), UNHURRIED, anonymize=True)
    explain = hidden.routes()["/explain"]
    assert isinstance(explain, Query)
    assert explain.asked is not None
    assert explain.asked({"podGroup": "default/x"}).status == 403
    assert [status for status, _ in both(hidden)] == [403, 403]
