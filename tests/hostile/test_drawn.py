"""Drawn clusters in which a few values are nonsense: every plan is legal, and nothing is dropped.

Clusters have every feature and option (``tests/support/options.py``). ``KAI_CP_HOSTILE_CLUSTERS`` sets how
many are tried, ``KAI_CP_HOSTILE_FIRST`` the first seed.
"""

from __future__ import annotations

import copy
import os
from random import Random

import pytest

from kai_cp_models.check import violations
from kai_cp_models.engine import FAILED, REJECTED
from kai_cp_models.reservations.prepare import prepare
from tests.hostile.test_reader import places
from tests.properties.reasking import decided, read
from tests.support import objects as raw
from tests.support.hostile import BAD_VALUES
from tests.support.options import with_options

COUNT = int(os.environ.get("KAI_CP_HOSTILE_CLUSTERS", "12"))
FIRST = int(os.environ.get("KAI_CP_HOSTILE_FIRST", "0"))
PLAIN = (None, True, -1, 0, 1, 2**40, 0.5, "", "abc", "-1", "1e9", "NaN", "n000", "default", [], {}, [{}])
"""Values that are nonsense in most places, and only odd in some."""


def damage(lists: raw.Object, rng: Random) -> None:
    """Replace, remove or add some values, in kinds of objects that are equally likely."""
    for _ in range(rng.randint(1, 4)):
        spots = places(lists[rng.choice(sorted(name for name in lists if lists[name]))], [])
        holder, key = rng.choice(spots)
        value = copy.deepcopy(rng.choice(BAD_VALUES if rng.random() < 0.4 else PLAIN))
        what = rng.random()
        if what < 0.7:
            holder[key] = value
        elif what < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice("abc")] = value
        else:
            holder.append(value)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_nonsense_costs_no_action_and_breaks_no_rule(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster, settings = with_options(seed)
    damage(cluster["rawObjects"], Random(seed))
    snapshot = read(cluster, settings)
    plan = decided(snapshot, settings)
    assert violations(prepare(snapshot, settings)[0], plan, settings.rules) == []
    assert not [stage.name for stage in plan.stages if stage.kind in (REJECTED, FAILED)]
    assert caplog.messages == []
