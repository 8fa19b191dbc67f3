"""Random holders, late and early, among running jobs: the checker refuses no plan of allocate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kai_cp_models.engine import decide
from kai_cp_models.snapshot import Snapshot
from tests.support.times import runs, settings, stored, waits, world
from tests.support.worlds import cluster, node

NAMES = ("n1", "n2", "n3")
Draw = Callable[..., Any]


@st.composite
def worlds(draw: Draw) -> Snapshot:
    """Three nodes with up to two jobs each, and two holders whose starts lie around now."""
    members = []
    for name in NAMES:
        for k, gpus in enumerate(draw(st.sampled_from(((), (8,), (4,), (4, 4), (2, 2))))):
            lasts, since = draw(st.sampled_from(("20m", "1h", "90m"))), draw(st.sampled_from((0, 5, 10, 40)))
            may_go = draw(st.integers(0, 4)) > 0
            job = f"{name}-{k}"
            members.append(runs(job, name, gpus, lasts, since=since, preemptible=may_go, priority=50))
    for k in range(2):
        nodes = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        gpus, lasts = draw(st.sampled_from((4, 8))), draw(st.sampled_from(("10m", "1h")))
        start, made = draw(st.sampled_from((-5, 0, 5, 10, 30))), draw(st.sampled_from((-30, -12, -8, -3)))
        held = stored(start, dict.fromkeys(nodes, gpus), made=made)
        members.append(
            waits(f"h{k}", len(nodes), gpus, lasts, reserve=True, waited=60, stored=held, priority=50)
        )
    return cluster(nodes=[node(name) for name in NAMES], **world(*members))


@examples(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds())
def test_allocate_evicts_with_a_right_and_holds_what_there_is(
    caplog: pytest.LogCaptureFixture, snapshot: Snapshot
) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        decide(snapshot, settings())
    assert [text for text in caplog.messages if text.startswith("allocate")] == []
