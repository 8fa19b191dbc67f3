"""Users inside a queue, against handing out one GPU at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.fairness.share import fair_shares
from tests.support.brute import worlds
from tests.support.plans import bound, solved
from tests.support.tiny import node, pod, world

NAMES = "abcd"


def handed_out(wanted: list[int], gpus: int) -> list[int]:
    """What each user has when every GPU goes to the user with the fewest among those that need more."""
    has = [0] * len(wanted)
    for _ in range(gpus):
        open_ = [i for i, most in enumerate(wanted) if has[i] < most]
        if not open_:
            break
        has[min(open_, key=lambda i: has[i])] += 1
    return has


@worlds(40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 9))
def test_shares_and_starts_are_those_of_one_gpu_at_a_time(wanted: list[int], gpus: int) -> None:
    """The order decides which of equal users comes first, so only the amounts are compared."""
    jobs = [f"{NAMES[u]}{i}" for u, count in enumerate(wanted) for i in range(count)]
    found = world(
        [node("n0", {"cpu": "64"}, gpus=gpus)],
        [pod(name, gpus=1) for name in jobs],
        groups={name: {"labels": {"user": name[0]}} for name in jobs},
        user_label="user",
    )
    expected = sorted(handed_out(wanted, gpus))
    shares = fair_shares(found)
    assert sorted(shares[f"q/{NAMES[u]}"].gpu for u in range(len(wanted))) == expected
    started = [name[0] for name in bound(solved(found))]
    assert sorted(started.count(NAMES[u]) for u in range(len(wanted))) == expected
