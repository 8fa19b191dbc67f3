"""Metrics of the time axis, read back with Prometheus' own parser; figures by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kai_cp.kube.api.promises import promises
from kai_cp.kube.scheduler.usage import query, usage_options
from kai_cp.reader import parse
from kai_cp.reader.annotations import group_notes
from kai_cp_models.plan import Decision, DefragReport, HoldState, IdleSoFar, Plan, Reservation, RolloutHolding
from kai_cp_models.pods import GroupKey, PodKey
from tests.kai_cp.kube.samples import group, node, pod, queue, snapshot
from tests.kai_cp.kube.telemetry.test_metrics import NOW, Watched

HERO = GroupKey("ns", "hero")


def raw(**more: Any) -> dict[str, Any]:
    """hero waits for 8 GPUs; 4 of node n are used by g."""
    lists = {
        "nodes": [node("n")],
        "pods": [pod("a", gpus=4, node="n", phase="Running"), pod("hero", "hero", gpus=8)],
        "queues": [queue(), queue("other")],
        "podGroups": [group(queue="other"), group("hero")],
    }
    return snapshot(**{**lists, **more})


def entry(state: HoldState, promised: float, start: float | None = None, **more: Any) -> Reservation:
    start = promised if start is None else start
    return Reservation(HERO, "q", state, start, promised, NOW - 600, {"n": 8.0}, **more)


def test_idle_gpus_are_counted_by_the_queue_that_holds_them() -> None:
    """8 GPUs are held, and 4 of them are used until the start: 4 stand idle for ten seconds."""
    watched = Watched()
    held = Plan(reservations=(entry("made", NOW + 600),))
    watched.cycle(raw(), held)
    watched.now += 10
    assert watched("kai_cp_reserved_idle_gpu_seconds_total", queue="q") == 40.0
    assert watched("kai_cp_reserved_idle_gpus", queue_name="q") == 4.0
    assert watched("kai_cp_reservations", queue="q", state="made") == 1.0
    watched.cycle(raw(), Plan(reservations=()))
    watched.now += 10
    assert watched("kai_cp_reserved_idle_gpu_seconds_total", queue="q") == 40.0
    assert watched("kai_cp_reserved_idle_gpus", queue_name="q") is None
    assert watched("kai_cp_reservations", queue="q", state="made") is None


def test_gpus_in_rollout_are_summed_by_queue() -> None:
    watched = Watched()
    web = RolloutHolding("ns", "Deployment/web", "q", "r2", NOW + 60, 4, 1)
    watched.cycle(
        raw(), Plan(rollouts=(web, replace(web, workload="Deployment/api", old_gpus=2, new_gpus=3)))
    )
    sides = {side: watched("kai_cp_rollout_gpus", queue="q", side=side) for side in ("old", "new", "lent")}
    assert sides == {"old": 6.0, "new": 4.0, "lent": 3.0}
    watched.cycle(raw(), Plan())
    assert watched("kai_cp_rollout_gpus", queue="q", side="old") is None


CAME = [
    ("started", 0, None, ("kept", "")),
    ("started", -80, None, ("kept", "")),
    ("started", 600, None, ("earlier", "")),
    ("started", -600, "Overrun", ("broken", "Overrun")),
    ("dropped", -600, "Expired", ("broken", "Expired")),
]


@pytest.mark.parametrize(("state", "due", "cause", "result"), CAME)
def test_promises_are_counted_when_they_come(
    state: HoldState, due: float, cause: str | None, result: tuple[str, str]
) -> None:
    watched = Watched()
    watched.cycle(raw(), Plan(reservations=(entry(state, NOW + due, cause=cause),)))
    assert watched("kai_cp_promises_total", queue="q", result=result[0], cause=result[1]) == 1.0


def test_a_start_that_is_only_nominated_and_one_not_wanted_count_not() -> None:
    watched = Watched()
    waits = Decision("Nominate", PodKey("ns", "hero"), HERO, "n", "reservation")
    watched.cycle(raw(), Plan((waits,), reservations=(entry("started", NOW),)))
    watched.cycle(raw(), Plan(reservations=(entry("dropped", NOW, cause="OptedOut"),)))
    for result in ("kept", "broken"):
        assert watched("kai_cp_promises_total", queue="q", result=result, cause="") is None


def test_the_cause_outlives_the_scheduler() -> None:
    """It is written when the start moves, kept while the start stands, and counted when the start comes."""
    parsed = parse(raw(), now=NOW)
    late = Plan(reservations=(entry("later", NOW, NOW + 600, cause="NodeLost"),))
    text = dict(promises(parsed, late))[HERO]["kai-cp/reservation"]
    marked = raw()
    marked["rawObjects"]["podGroups"][1]["metadata"]["annotations"] = {"kai-cp/reservation": text}
    again = parse(marked, now=NOW)
    assert again.group_by_key[HERO].notes.cause == "NodeLost"
    kept = Plan(reservations=(entry("kept", NOW, NOW + 600),))
    assert dict(promises(again, kept))[HERO]["kai-cp/reservation"] == text
    watched = Watched()
    watched.now += 600
    watched.cycle(marked, Plan(reservations=(entry("started", NOW, NOW + 600),)))
    assert watched("kai_cp_promises_total", queue="q", result="broken", cause="NodeLost") == 1.0
    in_time = Plan(reservations=(entry("earlier", NOW, NOW),))
    assert "cause" not in json.loads(dict(promises(again, in_time))[HERO]["kai-cp/reservation"] or "")


@pytest.mark.parametrize("text", ["{", "[]", '{"cause": 1}', '{"cause": "Magic"}', '{"cause": []}'])
def test_a_forged_cause_is_none(text: str) -> None:
    assert group_notes((("kai-cp/reservation", text),)).cause is None


def test_backfill_is_counted_with_what_a_start_takes_from_it() -> None:
    """a started an hour ago with 4 GPUs: its eviction loses 14,400 GPU-seconds."""
    marked = raw()
    meta = marked["rawObjects"]["podGroups"][0]["metadata"]
    meta["annotations"] = {"kai.scheduler/last-start-timestamp": "2027-01-15T07:00:00Z"}
    watched = Watched()
    gone = Decision("Evict", PodKey("ns", "a"), GroupKey("ns", "g"), "n", "reservation", triggers=(HERO,))
    watched.cycle(marked, Plan((gone,), reservations=(entry("started", NOW),)))
    assert watched("kai_cp_backfill_evicted_gpu_seconds_total", queue="other") == 14_400.0
    more = raw(pods=[pod("a", gpus=4), pod("hero", "hero", gpus=8)])
    came = Decision("Bind", PodKey("ns", "a"), GroupKey("ns", "g"), "n", "allocate")
    watched.cycle(more, Plan((came,), reservations=(entry("kept", NOW + 600),)))
    assert watched("kai_cp_backfilled_pods_total", queue="other") == 1.0


def test_declared_run_times_are_compared_with_the_truth() -> None:
    """g declares 30 minutes and ends after an hour: ratio 2. An evicted group tells nothing."""
    marked = raw()
    meta = marked["rawObjects"]["podGroups"][0]["metadata"]
    meta["annotations"] = {
        "kai.scheduler/last-start-timestamp": "2027-01-15T07:00:00Z",
        "kai-cp/expected-runtime": "30m",
    }
    for evicted, expected in ((False, 2.0), (True, None)):
        watched = Watched()
        watched.cycle(marked, Plan())
        after = json.loads(json.dumps(marked))
        after["rawObjects"]["pods"] = [pod("hero", "hero", gpus=8)]
        if evicted:
            note = {"kai.scheduler/last-eviction-timestamp": "2027-01-15T08:00:00Z"}
            after["rawObjects"]["podGroups"][0]["metadata"]["annotations"] |= note
        watched.cycle(after, Plan())
        assert watched("kai_cp_runtime_error_ratio_sum", queue="other") == expected
    marked["rawObjects"]["podGroups"][0]["spec"]["queue"] = "invented"
    watched = Watched()
    watched.cycle(marked, Plan())
    watched.cycle({**marked, "rawObjects": {**marked["rawObjects"], "pods": []}}, Plan())
    assert watched("kai_cp_runtime_error_ratio_sum", queue="") == 2.0
    assert watched("kai_cp_runtime_error_ratio_sum", queue="invented") is None


def test_the_goal_of_defragmentation_is_a_gauge() -> None:
    watched = Watched()
    watched.cycle(raw(), Plan(defrag=DefragReport("nodes=4", 2, 4, "closed", "")))
    assert watched("kai_cp_defrag_value", goal="nodes=4") == 2.0
    assert watched("kai_cp_defrag_wanted", goal="nodes=4") == 4.0
    watched.cycle(raw(), Plan())
    assert watched("kai_cp_defrag_value", goal="nodes=4") is None


def test_closed_places_count_as_held() -> None:
    watched = Watched()
    closed = replace(entry("draining", NOW), start=None, promised=None, idle=IdleSoFar(NOW, 4, 0))
    watched.cycle(raw(), Plan(reservations=(closed,)))
    assert watched("kai_cp_reserved_idle_gpus", queue_name="q") == 4.0
    assert watched("kai_cp_reservations", queue="q", state="draining") == 1.0


def test_idle_gpus_are_charged_where_the_settings_say_so() -> None:
    config = {"clientType": "prometheus", "connectionString": "http://p"}
    plain, charged = usage_options(config), usage_options(config, charge_idle=True)
    assert plain is not None
    assert charged is not None
    assert query(charged, charged.metrics["gpu"][0], NOW) == (
        "sum_over_time((((max by (queue_name) (kai_queue_allocated_gpus)) + on (queue_name) max by"
        " (queue_name) (kai_cp_reserved_idle_gpus)) or on (queue_name) (max by (queue_name)"
        " (kai_queue_allocated_gpus)))[604800s:1m])"
    )
    assert {name: charged.metrics[name] for name in ("cpu", "memory")} == {
        name: plain.metrics[name] for name in ("cpu", "memory")
    }
    assert charged.metrics["gpu"][1] == plain.metrics["gpu"][1]
