"""Proved refusals hold when they are asked again and all other refused groups are made impossible; see
``reasking``.

``KAI_CP_PROOF_CLUSTERS`` sets how many clusters are tried, ``KAI_CP_PROOF_FIRST`` the first seed.
"""

from __future__ import annotations

import os

import pytest

from tests.properties.reasking import Audit, rested, tiny_cluster, tried_out
from tests.support.clusters import random_cluster
from tests.support.extras import TOGETHER, everything, other_policy, promised
from tests.support.options import with_options

COUNT = int(os.environ.get("KAI_CP_PROOF_CLUSTERS", "25"))
FIRST = int(os.environ.get("KAI_CP_PROOF_FIRST", "0"))


@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + COUNT), 7_001_211, 7_001_571, 7_001_597])
def test_a_proved_refusal_holds_when_it_is_asked_again(seed: int) -> None:
    """What a refused group could take may entitle another (7,001,211), or free its limit (7,001,571)."""
    assert list(Audit(random_cluster(seed)).refuted()) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_proved_refusal_holds_in_a_cluster_at_rest(seed: int) -> None:
    assert list(Audit(rested(random_cluster(seed))).refuted()) == []


@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + COUNT), 32_000_116])
def test_a_proved_refusal_holds_beside_every_rule(seed: int) -> None:
    """A neighbour that a pod must join may stay, although it could be evicted (32,000,116)."""
    assert list(Audit(everything(seed), TOGETHER).refuted()) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, 3))
def test_a_proved_refusal_holds_under_every_policy(seed: int) -> None:
    assert list(Audit(other_policy(everything(seed), seed), TOGETHER).refuted()) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, 3))
def test_a_proved_refusal_holds_beside_promised_places(seed: int) -> None:
    assert list(Audit(promised(everything(seed), seed), TOGETHER).refuted()) == []


@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + COUNT, 3), 7_700_004, 18_000_035])
def test_a_proved_refusal_holds_under_every_option(seed: int) -> None:
    """What a maximum run time ends changes no turn of the snapshot (7,700,004), and what waits for its
    requeue delay has none (18,000,035)."""
    assert list(Audit(*with_options(seed)).refuted()) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_no_set_of_evictions_and_places_serves_a_group_whose_refusal_is_proved(seed: int) -> None:
    cluster = tiny_cluster(seed)
    if cluster is None:
        pytest.skip("no group of one or two pods waits")
    audit = Audit(cluster)
    assert [group for group in audit.proved if tried_out(audit.snapshot, group)[0] is not None] == []
