"""``decisions/1``: keys of the format page, lossless in both directions, and clear errors for wrong
documents.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from kai_cp.decisions import BadDecisions, cut_during, from_json, from_rfc3339, named_stages, rfc3339, to_json
from kai_cp_models.plan import (
    CUT,
    FAILED,
    FURTHER,
    REJECTED,
    SPENT,
    Decision,
    Plan,
    QueueReport,
    Stage,
    Unscheduled,
)
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.snapshot import SetAside, Shares
from kai_cp_topology.records import Locality
from tests.support.worlds import cluster

JOB, VICTIM = GroupKey("team", "job"), GroupKey("default", "victim")
PLAN = Plan(
    decisions=(
        Decision(
            "Evict", PodKey("default", "v-0"), VICTIM, "n0", "reclaim", "over its share", triggers=(JOB,)
        ),
        Decision(
            "Nominate",
            PodKey("team", "job-0"),
            JOB,
            "n0",
            "reclaim",
            gpu_groups=("g1",),
            details={"numaZones": [0]},
        ),
        Decision("Bind", PodKey("default", "single"), None, "n1", "allocate", "fits"),
    ),
    unscheduled=(Unscheduled(GroupKey("team", "big"), "OverLimit", "limit 8, used 8", True, {"limit": 8}),),
    stages=(Stage("allocate", "", "FEASIBLE", 10, 9.5, 0.05, 7, 3, 0.25),),
    queues={"q": QueueReport(Shares(1500, 2**30, 2.5), Shares(0, 0, 0), Shares(100, 0, 1))},
    timings={"prepare": 0.1, "solve": 0.2, "check": 0.3},
)
FAR, ALONE = Locality(100, 4, "rack", 2, 8), Locality(None, 8, "", 2, 1)
SNAPSHOT = replace(
    cluster(()),
    now=from_rfc3339("2026-11-20T12:00:00Z"),
    set_aside=(SetAside("Pod default/x", "spec.nodeName: no such node"),),
)


def test_document_has_exactly_the_keys_of_the_format() -> None:
    document = to_json(SNAPSHOT, PLAN, sha256="ab", timings={"read": 1.5, "write": 0.5})
    assert list(document) == [
        *("schema", "engine", "version", "snapshotSha256", "now", "cluster", "decisions", "unscheduled"),
        *("setAside", "stages", "timings", "queues"),
    ]
    evict, nominate, bind = document["decisions"]
    assert evict == {
        "kind": "Evict",
        "namespace": "default",
        "pod": "v-0",
        "podGroup": "victim",
        "queue": None,
        "gpus": None,
        "node": "n0",
        "action": "reclaim",
        "for": ["team/job"],
        "message": "over its share",
    }
    assert nominate["gpuGroups"] == ["g1"]
    assert nominate["numaZones"] == [0]
    assert "for" not in nominate
    assert bind["podGroup"] is None
    assert bind["gpuDevices"] is None
    assert document["now"] == "2026-11-20T12:00:00Z"
    assert document["setAside"] == [{"object": "Pod default/x", "reason": "spec.nodeName: no such node"}]
    assert document["unscheduled"][0]["podGroup"] == "team/big"
    assert document["unscheduled"][0]["proof"] == "proved"
    assert document["timings"] == {"read": 1.5, "prepare": 0.1, "solve": 0.2, "check": 0.3, "write": 0.5}
    assert document["queues"]["q"]["fairShare"] == {"gpu": 2.5, "cpu": 1500, "memory": 2**30}


def test_round_trip_loses_nothing() -> None:
    document = json.loads(json.dumps(to_json(SNAPSHOT, PLAN)))
    plan = from_json(document)
    assert plan.decisions == PLAN.decisions
    assert plan.unscheduled == PLAN.unscheduled
    assert plan.stages == PLAN.stages
    assert plan.queues == PLAN.queues


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        (Stage("allocate", "", "FEASIBLE"), "allocate"),
        (
            Stage("reclaim", "moved pods", "OPTIMAL"),
            "reclaim: moved pods",
        ),
        (Stage("reclaim", "", "FEASIBLE", kind=FURTHER), "reclaim: further goals"),
        (Stage("proofs", "", "GREEDY", kind=FAILED), "proofs: failed"),
        (Stage("reclaim", "", "FEASIBLE", kind=SPENT), "reclaim: ended by the budget's work"),
        (Stage("preempt", "", "GREEDY", kind=REJECTED), "preempt: rejected by the checker"),
        (Stage("MIG partition", "", "FEASIBLE", kind=CUT), "MIG partition: cut by the deadline"),
    ],
)
def test_the_name_of_a_stage_says_what_it_is(stage: Stage, name: str) -> None:
    assert stage.name == name
    document = json.loads(json.dumps(to_json(SNAPSHOT, Plan(stages=(stage,)))))
    assert from_json(document).stages == (stage,)
    assert cut_during(named_stages(document["stages"])) == (stage.action if stage.kind == CUT else None)


def test_localities_are_there_when_there_are_any() -> None:
    document = json.loads(json.dumps(to_json(SNAPSHOT, Plan(localities={JOB: FAR, VICTIM: ALONE}))))
    assert document["localities"][1] == {
        "podGroup": "team/job",
        "level": "rack",
        "hops": 4,
        "worstPairGBytesPerSecond": 100,
        "nvlinkDomains": 2,
        "segmentGpus": 8,
    }
    assert from_json(document).localities == {JOB: FAR, VICTIM: ALONE}


def test_amounts_that_json_lacks_are_null() -> None:
    plan = Plan(queues={"q": QueueReport(Shares(math.inf, 0, -1), Shares(0, 0, 0), Shares(0, 0, 0))})
    share = to_json(SNAPSHOT, plan)["queues"]["q"]["fairShare"]
    assert share == {"gpu": -1, "cpu": None, "memory": 0}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "not a JSON object"),
        ({"schema": "decisions/2"}, "schema is 'decisions/2'"),
        ({}, "decisions is missing"),
        ({"decisions": [{"kind": "Move"}]}, "decisions[0].kind is 'Move'"),
        ({"decisions": ["x"]}, "decisions[0] is not an object"),
        ({"decisions": [{"kind": "Bind", "pod": "p", "node": 3, "action": "allocate"}]}, "decisions[0].node"),
        ({"decisions": [{"kind": "Bind", "pod": "p", "namespace": ["n"]}]}, "decisions[0].namespace"),
        ({"decisions": [{"kind": "Bind", "pod": "p", "podGroup": {"g": 1}}]}, "decisions[0].podGroup"),
        (
            {"decisions": [{"kind": "Bind", "pod": "p", "node": "n", "action": "x"}]},
            "decisions[0].action is 'x'",
        ),
        (
            {"decisions": [{"kind": "Bind", "pod": "p", "node": "n", "action": "allocate", "gpuGroups": 3}]},
            "decisions[0].gpuGroups is not a list",
        ),
        ({"decisions": [], "unscheduled": [{"podGroup": "g"}]}, "unscheduled[0].reason"),
        ({"decisions": [], "unscheduled": 3}, "unscheduled is not a list"),
        ({"decisions": [], "stages": [{"name": "allocate", "status": "DONE"}]}, "stages[0].status is 'DONE'"),
        (
            {"decisions": [], "stages": [{"name": "a", "status": "GREEDY", "gap": "x"}]},
            "stages[0].gap is not a number",
        ),
        ({"decisions": [], "localities": [{"podGroup": "g", "hops": "x"}]}, "localities[0].hops"),
        ({"decisions": [], "queues": {"q": 3}}, "queues"),
        ({"decisions": [], "timings": {"read": "soon"}}, "timings.read is not a number"),
        ({"decisions": [], "queues": {"q": {"fairShare": {"gpu": "x"}}}}, "queues.q.fairShare.gpu"),
    ],
)
def test_wrong_document_is_named(document: object, words: str) -> None:
    with pytest.raises(BadDecisions) as error:
        from_json(document)
    assert words in str(error.value)


def test_large_integers_become_numbers_that_json_has() -> None:
    stage = {"name": "s", "status": "OPTIMAL", "objective": 10**30, "bound": 0, "gap": 0}
    plan = from_json({"decisions": [], "stages": [stage], "timings": {"read": 1}})
    assert isinstance(plan.stages[0].objective, float)


def test_times_are_utc_without_needless_digits() -> None:
    assert rfc3339(from_rfc3339("2026-11-20T13:00:00+01:00")) == "2026-11-20T12:00:00Z"
    assert rfc3339(from_rfc3339("2026-11-20T12:00:00.5Z")) == "2026-11-20T12:00:00.500000Z"
    assert from_rfc3339("2026-11-20T12:00:00") == from_rfc3339("2026-11-20T12:00:00Z")
