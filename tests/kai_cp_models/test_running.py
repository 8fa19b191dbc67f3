"""What runs as columns: each row beside the unit that the group's gang gives up, in random clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_cp.reader import ParseMemo, parse
from kai_cp_models.fairness.amounts import milli_gpus
from kai_cp_models.joint.victim_candidates import charged
from kai_cp_models.ledger import Ledger
from kai_cp_models.running import UNIT, Running
from kai_cp_models.units import Gang
from tests.kai_cp.reader.raw import NOW
from tests.properties.reasking import read
from tests.support.changing import Changing
from tests.support.clusters import random_cluster


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_the_units_of_the_gangs(seed: int) -> None:
    """Of a group that is one pod set no gang is made; its rows are those that its gang would give."""
    snapshot = read(random_cluster(seed, scale=3))
    ledger = Ledger.of(snapshot)
    running, row = ledger.fixed.running, 0
    assert {group.key for group in running.groups} == {
        pod.group
        for pod in snapshot.pods
        if pod.group in snapshot.group_by_key
        and snapshot.group_by_key[pod.group].preemptible
        and ledger.place_of(pod) is not None
    }
    for g, group in enumerate(running.groups):
        gang = Gang(group, snapshot.members[group.key])
        for chain, unit in enumerate(gang.units_at_first):
            found = running.units[row]
            first, count = int(found["first"]), int(found["pods"])
            assert tuple(running.pods[first : first + count]) == unit.pods
            assert (found["group"], found["chain"], found["whole"]) == (g, chain, unit.whole)
            assert (found["state"], found["movable"]) == (unit.elastic_state, gang.at_first.satisfied)
            plain = gang.top.leaf and gang.at_first.satisfied and not gang.unknown_subgroup_pods
            assert running.plain.get(gang.group.key) == (
                gang.at_first.tally.met[gang.top.name] if plain else None
            )
            assert found["weight"] == sum(milli_gpus(pod) + 1 for pod in unit.pods)
            assert tuple(found["gives"]) == charged(ledger, unit.pods)
            row += 1
    assert row == len(running.units)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 6), min_size=1, max_size=8))
@example(395, [4, 3])
def test_rows_of_a_cycle_before_are_those_of_a_first_look(seed: int, changes: list[int]) -> None:
    """Rows that are taken from the cycle before are those that a first look finds; ``changes``: how many
    objects change before each cycle."""
    cluster, memo = Changing(seed), ParseMemo()
    for turn, count in enumerate((0, *changes)):
        for _ in range(count):
            cluster.step()
        fixed = Ledger.of(parse(cluster.raw, now=NOW + turn, memo=memo)).fixed
        found, fresh = fixed.running, Running(fixed.snapshot, fixed.gangs, fixed.homes, None)
        assert (found.groups, found.pods) == (fresh.groups, fresh.pods)
        assert found.homes.tolist() == fresh.homes.tolist()
        for name in UNIT.names or ():
            np.testing.assert_array_equal(found.units[name], fresh.units[name])
