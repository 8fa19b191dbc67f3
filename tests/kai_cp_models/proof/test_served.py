"""The fair order of what got places: where allocate alone gave them, its turns are those of a replay."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models import proof
from kai_cp_models.engine import decide
from kai_cp_models.proof.served import ServedBatches
from kai_cp_models.settings import Settings
from tests.support import objects as raw
from tests.support.clusters import random_cluster


def test_turns_of_allocate_are_those_of_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[tuple[Any, ...]]()

    def noted(*arguments: Any) -> ServedBatches:
        given.append(arguments)
        return ServedBatches(*arguments)

    monkeypatch.setattr(proof, "ServedBatches", noted)
    for seed in range(40):
        snapshot = parse(random_cluster(seed), now=raw.NOW.timestamp())
        decide(snapshot, Settings(), deadline=float("inf"))
    alone = [one for one in given if (made := ServedBatches(*one)).as_served and made.groups]
    assert alone
    for one in alone:
        kept, replayed = ServedBatches(*one), ServedBatches(*one)
        replayed.as_served = False
        assert kept.asks == replayed.asks
        assert all(kept.before(key) == replayed.before(key) for key in one[-1])
