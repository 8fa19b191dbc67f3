"""Host ports: two-way wildcards, per protocol, releasing pods."""

from __future__ import annotations

import pytest

from kai_cp_models.pods import Pod
from kai_cp_models.rules.stateful import ports
from tests.kai_cp_models.rules.stateful.build import pod, snapshot, spec


def taker(name: str, node: str | None, *held: tuple[str, str, int]) -> Pod:
    return pod(name, node, wants=spec(host_ports=tuple(held)))


@pytest.mark.parametrize(
    ("held", "asked", "accepted"),
    [
        (("", "TCP", 80), ("", "TCP", 80), False),
        (("", "TCP", 80), ("", "TCP", 81), True),
        (("", "TCP", 80), ("", "UDP", 80), True),
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), ("", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
    ],
)
def test_conflicts_are_two_way(
    held: tuple[str, str, int], asked: tuple[str, str, int], accepted: bool
) -> None:
    new = taker("new", None, asked)
    state = ports.open(snapshot([taker("old", "n0", held), new]))
    mask = state.mask(new, now=True)
    assert mask is None or list(mask)[1:] == [True, True]
    assert (mask is None or bool(mask[0])) is accepted


def test_a_leaving_pod_blocks_now_and_not_later() -> None:
    old, new = taker("old", "n0", ("", "TCP", 80)), taker("new", None, ("", "TCP", 80))
    state = ports.open(snapshot([old, new]))
    trial = state.copy()
    trial.evict(old)
    now, later = trial.mask(new, now=True), trial.mask(new, now=False)
    assert now is not None
    assert later is not None
    assert (list(now), list(later)) == ([False, True, True], [True, True, True])
    trial.unevict(old)
    trial.place(new, 1, pipelined=False)
    later = trial.mask(taker("third", None, ("", "TCP", 80)), now=False)
    assert later is not None
    assert list(later) == [False, False, True]
    untouched = state.mask(new, now=False)
    assert untouched is not None
    assert list(untouched) == [False, True, True]


def test_rows_let_one_pod_in_per_evicted_holder() -> None:
    old = taker("old", "n0", ("10.0.0.1", "TCP", 80))
    new = taker("new", None, ("", "TCP", 80))
    state = ports.open(snapshot([old, new]))
    found = {(tuple(row.entering), row.bound, tuple(row.leaving)) for row in state.rows([new], [3], [0, 1])}
    assert found == {(((0, 0),), 0, (old.key,)), (((0, 1),), 1, ())}


def test_pods_without_host_ports_do_not_pay() -> None:
    plain = pod("plain", "n0")
    assert not ports.active(snapshot([plain]), None)  # type: ignore[arg-type]
    assert not ports.open(snapshot([plain, taker("t", "n1", ("", "TCP", 80))])).concerns(plain)
