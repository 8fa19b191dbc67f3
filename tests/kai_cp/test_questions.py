"""Questions about one small cluster, with answers argued by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kai_cp.documents import problems
from kai_cp.instants import from_rfc3339
from kai_cp.questions.reduce import BadFact, Fact, reduced, units, without
from kai_cp.questions.why import because
from kai_cp.reader import parse
from kai_cp_models.engine import decide
from kai_cp_models.plan import Plan, QueueReport, Unscheduled
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.shares import OwedGroups
from kai_cp_models.snapshot import Shares
from tests.kai_cp.kube.samples import group, node, pod, snapshot
from tests.kai_cp.test_cli import run
from tests.support.plans import UNHURRIED

Object = dict[str, Any]
NOW = "2026-11-20T12:00:00Z"
DEMO = Path(__file__).parents[2] / "examples" / "demo-cluster.json"


def queue(name: str, quota: float, parent: str = "") -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Object = {
        "resources": {"cpu": free, "memory": free, "gpu": {**free, "quota": quota, "overQuotaWeight": 0}}
    }
    if parent:
        spec["parentQueue"] = parent
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": spec,
    }


def world() -> Object:
    """8 GPUs: ``rich`` (quota 2) runs a non-preemptible job of 8; ``poor`` (quota 6) waits for 4. No
    pod may be evicted, so poor is owed 4 GPUs and rich borrows 6. ``idle`` has quota 0.
    """
    running = pod("r-0", "r", gpus=8, node="n", phase="Running")
    holder = group("r", 1, "rich")
    holder["spec"]["preemptibility"] = "non-preemptible"
    return snapshot(
        nodes=[node("n", gpus=8)],
        pods=[running, pod("p-0", "p", gpus=4)],
        queues=[
            queue("dept", 8),
            queue("rich", 2, "dept"),
            queue("poor", 6, "dept"),
            queue("idle", 0, "dept"),
        ],
        podGroups=[holder, group("p", 1, "poor")],
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "world.json"
    made.write_text(json.dumps(world()))
    return made


def asked(command: str, path: Path, *more: str) -> Object:
    done = run(command, path, "-o", "json", "--now", NOW, *more)
    assert done.returncode == 0, done.stderr
    answer: Object = json.loads(done.stdout)
    return answer


def test_a_part_of_an_answer_is_told_as_one(path: Path) -> None:
    """Without it *no pod group waits* would speak of the whole cluster."""
    assert run("pending", path, "--queue", "idle").stdout.startswith(
        "world, only queue idle: after the plan no pod group waits."
    )


def test_pending_says_which_groups_wait_and_why(path: Path) -> None:
    answer = asked("pending", path)
    assert [(e["position"], e["podGroup"], e["queue"], e["gpus"]) for e in answer["pending"]] == [
        (1, "ns/p", "poor", 4)
    ]
    assert answer["pending"][0]["reason"]


def test_queues_show_what_is_borrowed_and_due(path: Path) -> None:
    found = {queue["queue"]: queue for queue in asked("queues", path)["queues"]}
    assert [found[name]["borrowed"] for name in ("dept", "rich", "poor")] == [0, 6, 0]
    assert [found[name]["used"] for name in ("dept", "rich", "poor")] == [8, 8, 0]
    assert found["rich"]["depth"] == 1
    assert found["poor"]["waitingPodGroups"] == 1


def test_audit_names_the_pair_and_the_least_that_would_help(path: Path) -> None:
    answer = asked("audit", path)
    owed = {(pair["owed"], pair["podGroup"], pair["gpus"], pair["borrows"]) for pair in answer["pairs"]}
    # The department is full; below it poor is within its share of 4, and rich is 6 above its share of 2.
    assert owed == {("poor", "ns/p", 4, "rich")}
    assert [pair["enough"] for pair in answer["pairs"]] == [True]
    assert answer["idleQuota"] == []


def test_quota_is_idle_where_nothing_of_its_queue_waits_after_the_plan(path: Path) -> None:
    """With four GPUs more p starts, and 2 of the 6 GPUs of its queue's quota are idle."""
    made = world()
    made["rawObjects"]["nodes"].append(node("m", gpus=4))
    path.write_text(json.dumps(made))
    assert asked("audit", path)["idleQuota"] == [{"queue": "poor", "quota": 6, "used": 4, "idle": 2}]


@pytest.mark.parametrize("command", ["pending", "queues", "evictions", "plan", "solve", "inspect"])
def test_a_queue_that_is_not_there_is_wrong_usage(path: Path, command: str) -> None:
    done = run(command, path, "--queue", "por", "--now", NOW)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kai-cp: --queue: world has no queue por; the nearest: poor\n"


def test_several_snapshots_need_not_all_have_a_queue(path: Path) -> None:
    done = run("solve", path, DEMO, "--queue", "poor", "-o", "name")
    assert (done.returncode, done.stdout) == (0, "podgroup/ns/p\n")
    assert "demo-cluster has no queue poor" in done.stderr


def test_decisions_for_another_snapshot_are_told(path: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(run("solve", DEMO, "-o", "json").stdout)
    assert "the decisions are for another snapshot" in run("pending", path, answer, "--now", NOW).stderr
    assert run("pending", DEMO, answer).stderr == ""


@pytest.mark.parametrize("command", ["pending", "queues", "evictions", "audit", "plan", "view"])
def test_given_decisions_that_break_a_rule_are_told(tmp_path: Path, command: str) -> None:
    made = json.loads(run("solve", DEMO, "-o", "json").stdout)
    moved = [one | ({"node": "gpu-0"} if one["kind"] == "Bind" else {}) for one in made["decisions"]]
    answer, page = tmp_path / "answer.json", tmp_path / "page.html"
    rest = ("--output", page) if command == "view" else ()
    for document, broken in ((made, False), ({**made, "decisions": moved}, True)):
        answer.write_text(json.dumps(document))
        done = run(command, DEMO, answer, *rest)
        assert (done.returncode, "the decisions break" in done.stderr) == (0, broken)
        if command == "view":
            (text,) = re.findall(
                r'<script type="application/json" id="data">(.*?)</script>', page.read_text()
            )
            assert bool(json.loads(text)["broken"]) is broken


def test_a_part_of_an_answer_is_drawn_unchecked_and_says_so(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(run("solve", DEMO, "--queue", "vision", "-o", "json").stdout)
    assert "whether the answer breaks a rule is not known" in run("pending", DEMO, answer).stderr


P, FREE = GroupKey("ns", "p"), Shares(-1, -1, -1)


@pytest.mark.parametrize(
    ("reason", "share", "owed_by_rich"),
    [
        pytest.param("NoRoomInSum", Shares(-1, -1, 4), True, id="within its share"),
        pytest.param("NoRoomInSum", Shares(-1, -1, 3.9), False, id="four GPUs are above its share"),
        pytest.param("NoRoomInSum", Shares(0, -1, 4), False, id="its share of CPUs is used up"),
        pytest.param("Withdrawn", Shares(-1, -1, 4), False, id="the next cycle goes on with it"),
        pytest.param("NextIncrement", Shares(-1, -1, 4), False, id="the same"),
        pytest.param("OverLimit", Shares(-1, -1, 4), False, id="its own limit"),
    ],
)
def test_owed_is_one_rule_for_queues_and_audit(reason: str, share: Shares, owed_by_rich: bool) -> None:
    found = parse(world(), now=from_rfc3339(NOW))
    none, full = Shares(0, 0, 0), Shares(0, 0, 8)
    reports = {
        "dept": QueueReport(full, full, full),
        "rich": QueueReport(Shares(-1, -1, 2), full, full),
        "poor": QueueReport(share, none, Shares(1, 0, 0)),
    }
    owed = OwedGroups.of(found, Plan(unscheduled=(Unscheduled(P, reason, "", False),), queues=reports))
    assert owed.by_queue() == {}, "the department has all that it is due"
    assert owed.by_queue("rich") == ({"poor": [P]} if owed_by_rich else {})
    free = {**reports, "dept": QueueReport(FREE, full, full)}
    assert replace(owed, plan=replace(owed.plan, queues=free)).by_queue() == owed.by_queue("rich")


def test_queues_and_audit_say_what_is_before_and_what_after_the_plan(path: Path) -> None:
    assert "now 0 GPUs borrowed between top-level queues; after the plan 0 pod groups are owed" in (
        run("queues", path, "--now", NOW).stdout
    )
    assert "after the plan 1 queue is owed while others are above their fair share" in (
        run("audit", path, "--now", NOW).stdout
    )


def test_evictions_are_reported_by_pod(path: Path) -> None:
    assert asked("evictions", path)["evictions"] == []
    done = run("evictions", DEMO, "-o", "csv")
    assert done.returncode == 0
    header, *rows = done.stdout.splitlines()
    assert header.split(",")[:3] == ["pod", "podGroup", "queue"]
    assert len(rows) == 4


@pytest.mark.parametrize("command", ["pending", "queues", "evictions", "audit"])
def test_a_csv_without_rows_has_the_same_header(path: Path, tmp_path: Path, command: str) -> None:
    empty = json.loads(path.read_text("utf-8"))
    for kind in ("pods", "podGroups", "queues"):
        empty["rawObjects"][kind] = []
    nothing = tmp_path / "nothing.json"
    nothing.write_text(json.dumps(empty), "utf-8")
    filled = DEMO if command == "evictions" else path
    found = [
        list(csv.reader(io.StringIO(run(command, one, "-o", "csv").stdout))) for one in (filled, nothing)
    ]
    assert len(found[0]) > 1
    assert found[1] == found[0][:1]


def test_a_csv_has_what_only_some_rows_have(path: Path, tmp_path: Path) -> None:
    """A queue with limits for kinds of GPUs stood before one without: KeyError."""
    kinds = {"kai-cp/gpu-kinds": json.dumps({"NVIDIA-H100-80GB-HBM3": {"limit": 8}})}
    raw = json.loads(path.read_text("utf-8"))
    raw["rawObjects"]["queues"][0]["metadata"]["annotations"] = kinds
    made, settings = tmp_path / "kinds.json", tmp_path / "settings.yaml"
    made.write_text(json.dumps(raw), "utf-8")
    settings.write_text("rules: {gpu_kinds: true}", "utf-8")
    done = run("queues", made, "--config", settings, "-o", "csv")
    assert done.returncode == 0, done.stderr
    cells = [row["gpuKinds"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert json.loads(cells[0])["NVIDIA-H100-80GB-HBM3"]["limit"] == 8
    assert set(cells[1:]) == {""}


def test_a_queue_says_why_its_peers_have_more(path: Path) -> None:
    """rich holds eight GPUs of a quota of two; poor is due four, which is what it asks for."""
    document = asked("queues", path, "--why", "rich")
    assert [(one["queue"], one["because"]) for one in document["queues"]] == [
        ("dept", "above this queue"),
        ("rich", "this queue"),
        ("poor", "4 of what it asks for is within its quota, 2 here"),
        ("idle", "no larger fair share"),
    ]
    said = run("queues", path, "--why", "poor", "--now", NOW).stdout
    assert "queue poor holds 0 GPUs of a fair share of 4, and waits for 4 more." in said
    unknown = run("queues", path, "--why", "por")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "kai-cp: --why: world has no queue por; the nearest: poor\n",
    )


@pytest.mark.parametrize(
    ("mine", "peer", "words"),
    [
        ({}, {"quota": 4, "fairShare": 4}, "4 of what it asks for is within its quota, 2 here"),
        ({"limit": 2}, {"fairShare": 4}, "q is due all that its limit of 2 allows"),
        ({"asked": 2}, {"fairShare": 4}, "q is due all that it asks for"),
        ({}, {"fairShare": 4, "priority": 200}, "its queue priority is 200, 100 here"),
        ({}, {"fairShare": 4, "overQuotaWeight": 3}, "its over-quota weight is 3, 1 here"),
        ({}, {"used": 5}, "holds 3 above its fair share, which can be reclaimed"),
        ({}, {}, "no larger fair share"),
    ],
)
def test_the_first_rule_that_makes_a_share_larger_is_named(mine: Object, peer: Object, words: str) -> None:
    same = {
        "quota": 2,
        "limit": -1,
        "priority": 100,
        "overQuotaWeight": 1,
        "fairShare": 2,
        "used": 2,
        "asked": 9,
    }
    assert because({"queue": "q", **same, **mine}, {"queue": "p", **same, **peer}) == words


@pytest.mark.parametrize("command", ["pending", "queues", "evictions", "audit", "plan"])
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name", "csv"])
def test_every_question_has_every_form(path: Path, command: str, form: str) -> None:
    done = run(command, path, "-o", form, "--now", NOW)
    assert done.returncode == 0, done.stderr
    assert all(line == line.rstrip() for line in done.stdout.splitlines()) or form == "table"


@pytest.mark.parametrize("command", ["pending", "queues", "evictions", "audit", "plan", "view"])
def test_bad_input_is_one_sentence(command: str, tmp_path: Path) -> None:
    done = run(command, tmp_path / "nowhere.zip")
    assert done.returncode == 1
    assert "nowhere.zip" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("content", ["", "[1]", '{"kind": "Pod"}'])
def test_a_file_that_explains_nothing_is_named(tmp_path: Path, content: str) -> None:
    made = tmp_path / "explanation.json"
    made.write_text(content, "utf-8")
    done = run("view", DEMO, "--explained", made, "--output", tmp_path / "page.html")
    assert done.returncode == 2
    assert str(made) in done.stderr
    assert "explanation/1" in done.stderr


def answer_file(tmp_path: Path, name: str, document: Object) -> Path:
    made = tmp_path / name
    made.write_text(json.dumps(document))
    return made


def test_two_answers_differ_by_pod_group_and_pod(tmp_path: Path) -> None:
    ours = json.loads(run("solve", DEMO, "--format", "json").stdout)
    kept = [d for d in ours["decisions"] if not (d["kind"] == "Evict" and d["podGroup"] == "llm-tune")]
    theirs = {**ours, "decisions": [d for d in kept if d["podGroup"] != "chat-api"]}
    a, b = answer_file(tmp_path, "a.json", ours), answer_file(tmp_path, "b.json", theirs)
    assert run("diff", a, a).returncode == 0
    done = run("diff", a, b, "-o", "json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert [entry["podGroup"] for entry in answer["podGroups"]] == ["default/chat-api"]
    assert answer["evictions"] == [{"pod": "default/llm-tune-0", "a": "evicted", "b": "stays"}]
    assert run("diff", a, DEMO).returncode == 2
    (tmp_path / "cut.json").write_text("{")
    for bad in (tmp_path / "cut.json", tmp_path / "none.json", tmp_path / "none.zip", tmp_path):
        done = run("diff", a, bad)
        assert (done.returncode, str(bad) in done.stderr) == (2, True), "1 would say that they differ"


def test_two_answers_differ_by_node(tmp_path: Path) -> None:
    ours = json.loads(run("solve", DEMO, "--format", "json").stdout)
    theirs = json.loads(json.dumps(ours))
    theirs["decisions"][0]["node"] = "elsewhere"
    pod, node = (ours["decisions"][0][key] for key in ("pod", "node"))
    a, b = answer_file(tmp_path, "a.json", ours), answer_file(tmp_path, "b.json", theirs)
    done = run("diff", a, b, "-o", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert problems("decision-diff/1", found) == []
    assert found["places"] == [{"pod": f"default/{pod}", "a": node, "b": "elsewhere"}]
    assert run("diff", a, b).stdout.startswith("Different: 1 node.")


def test_answers_of_kai_name_no_pod_groups_and_nothing_that_waits(tmp_path: Path) -> None:
    """As KAI's decisions are recorded. The same plan in this form does not differ, and breaks no rule."""
    ours = json.loads(run("solve", DEMO, "--format", "json").stdout)
    keys = ("kind", "namespace", "pod", "node", "action", "for", "gpuGroups")
    theirs = {"decisions": [{k: d[k] for k in keys if k in d} for d in ours["decisions"]]}
    a, b = answer_file(tmp_path, "kai.json", theirs), answer_file(tmp_path, "ours.json", ours)
    done = run("diff", a, b, "-o", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert problems("decision-diff/1", found) == []
    assert found["podGroups"] == found["evictions"] == found["places"] == []
    assert (found["a"]["pendingPodGroups"], found["b"]["pendingPodGroups"]) == (
        None,
        len(ours["unscheduled"]),
    )
    assert run("check", DEMO, a, "--now", ours["now"]).returncode == 0
    plan = run("plan", DEMO, a).stdout
    assert "Without proof" in plan
    assert "llm-tune" in plan
    for command in ("pending", "audit"):
        done = run(command, DEMO, a)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{a}: these decisions do not tell what stays pending" in done.stderr


def test_answers_of_other_parts_are_refused_and_of_other_snapshots_said(tmp_path: Path) -> None:
    ours = json.loads(run("solve", DEMO, "--format", "json").stdout)
    a = answer_file(tmp_path, "a.json", ours)
    part = answer_file(tmp_path, "part.json", {**ours, "selected": {"queues": ["vision"]}})
    other = answer_file(tmp_path, "other.json", {**ours, "snapshotSha256": "f" * 64})
    refused = run("diff", a, part)
    assert (refused.returncode, "part of an answer" in refused.stderr) == (2, True)
    said = run("diff", a, other)
    assert (said.returncode, "two different snapshots" in said.stderr) == (0, True)


def test_two_snapshots_differ_by_object_and_field(tmp_path: Path) -> None:
    old, new = world(), world()
    new["rawObjects"]["nodes"][0]["spec"]["unschedulable"] = True
    new["rawObjects"]["nodes"][0]["metadata"]["resourceVersion"] = "99"
    new["rawObjects"]["queues"].pop()
    new["rawObjects"]["pods"].append(pod("q-0", "q"))
    a, b = answer_file(tmp_path, "a.json", old), answer_file(tmp_path, "b.json", new)
    answer = json.loads(run("diff", a, b, "-o", "json").stdout)
    assert problems("snapshot-diff/1", answer) == []
    assert answer["objects"][0]["values"] == [{"field": "spec.unschedulable", "a": None, "b": True}]
    assert "spec.unschedulable: absent → true" in run("diff", a, b).stdout
    assert [(e["kind"], e["object"], e["change"], e.get("fields")) for e in answer["objects"]] == [
        ("nodes", "n", "changed", ["spec.unschedulable"]),
        ("pods", "ns/q-0", "added", None),
        ("queues", "idle", "removed", None),
    ]


def holds(raw: Any, fact: Fact) -> bool:
    parsed = parse(raw, now=1_795_176_000.0)
    return fact.holds(parsed, decide(parsed, UNHURRIED))


def test_reducing_leaves_what_the_fact_needs_and_nothing_else() -> None:
    raw = world()
    raw["rawObjects"]["nodes"] += [node(f"closed-{i}") for i in range(6)]
    for item in raw["rawObjects"]["nodes"][1:]:
        item["spec"]["unschedulable"] = True
    raw["rawObjects"]["pods"] += [pod(f"x{i}", f"x{i}", gpus=9) for i in range(5)]
    raw["rawObjects"]["podGroups"] += [group(f"x{i}", 1, "idle") for i in range(5)]
    fact = Fact.of("waiting ns/p")
    small = reduced(raw, lambda trial: holds(trial, fact), lambda _left, _tries: None)
    assert holds(small, fact)
    groups = {item["metadata"]["name"] for item in small["rawObjects"]["podGroups"]}
    assert "p" in groups
    assert not groups & {f"x{i}" for i in range(5)}
    # Nothing more can be left out, which is the meaning of reduced.
    for unit in units(small):
        assert not holds(without(small, unit), fact)


def test_a_reduced_file_holds_no_name(tmp_path: Path, path: Path) -> None:
    small = tmp_path / "small.json"
    done = run("snapshot", "reduce", path, small, "--fact", "waiting ns/p", "--now", NOW)
    assert done.returncode == 0, done.stderr
    text = small.read_text()
    assert not [name for name in ("poor", "rich", "r-0", "p-0") if name in text]
    parsed = parse(world(), now=1_795_176_000.0)
    reason = decide(parsed, UNHURRIED).unscheduled[0].reason
    assert f" {reason}, which was ns/p" in done.stdout
    assert reason in run("solve", small, "--now", NOW).stdout
    assert json.loads(text)["rawObjects"]["nodes"], "without a node everything waits"


def test_a_reduced_file_may_lose_the_reason_only_where_that_is_said() -> None:
    plan = decide(parse(world(), now=1_795_176_000.0), UNHURRIED)
    reason = plan.unscheduled[0].reason
    assert Fact.of("waiting ns/p").with_reason(plan).reason == reason
    assert Fact.of("waiting ns/p any").with_reason(plan).reason == "any"


@pytest.mark.parametrize("fact", ["", "waiting", "sleeping ns/p", "served ns/p because"])
def test_a_fact_that_is_none_is_refused(fact: str, path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFact):
        Fact.of(fact)
    done = run("snapshot", "reduce", path, tmp_path / "x.json", "--fact", fact)
    assert done.returncode == 2
    assert "waiting NS/GROUP" in done.stderr


def test_a_file_of_another_kind_is_refused_before_anything_is_decided(path: Path, tmp_path: Path) -> None:
    done = run("snapshot", "reduce", path, tmp_path / "x.txt", "--fact", "waiting ns/p")
    assert (done.returncode, done.stdout) == (2, "")
    assert "OUTPUT: " in done.stderr
    assert "expected a name that ends in .json or .zip" in done.stderr


def test_a_false_fact_is_reported(path: Path, tmp_path: Path) -> None:
    done = run("snapshot", "reduce", path, tmp_path / "x.json", "--fact", "served ns/p", "--now", NOW)
    assert done.returncode == 1
    assert done.stderr.endswith("'served ns/p' is not true of it\n")
    done = run(
        "snapshot", "reduce", path, tmp_path / "x.json", "--fact", "waiting ns/p OverLimit", "--now", NOW
    )
    assert done.stderr.endswith("is not true of it; the reason is NoRoomInSum\n")
    done = run("snapshot", "reduce", path, tmp_path / "x.json", "--fact", "waiting ns/pp", "--now", NOW)
    assert done.stderr.endswith("is not true of it; no such pod group waits; the nearest: ns/p\n")


def test_a_skipped_object_is_named_as_answers_name_it(tmp_path: Path) -> None:
    done = run("snapshot", "reduce", DEMO, tmp_path / "x.json", "--fact", "skipped Pod default/broken-0")
    assert (done.returncode, done.stderr) == (0, "")
    assert Fact.of("skipped Pod default/broken-0").subject == "Pod default/broken-0"
