"""Choices of pods to stop: their number does not matter, only how many are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kai_cp.explain import choices
from kai_cp.explain.trials import Trials
from kai_cp_models.pods import PodStatus


def stopped(monkeypatch: pytest.MonkeyPatch, chains: list[list[tuple[str, ...]]], size: int) -> list[str]:
    """The choices of that many pods; ``chains``: by pod group, the pods of each eviction unit."""
    units = [[tuple(SimpleNamespace(key=pod) for pod in unit) for unit in chain] for chain in chains]
    monkeypatch.setattr(choices, "eviction_units", lambda _situation, key: units[key])
    groups = [SimpleNamespace(key=i) for i in range(len(chains))]
    trials: Any = SimpleNamespace(asked=(), situation=None, snapshot=SimpleNamespace(groups=groups))
    found = choices.stops(cast(Trials, trials), size)
    return [" ".join(cast(list[str], one.ops[0]["pods"])) for one in found]


def test_units_go_in_the_order_of_their_pod_group(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [[("a",), ("b",)], [("c", "d")], [("e",)]]
    assert stopped(monkeypatch, chains, 1) == ["e", "a"]
    assert stopped(monkeypatch, chains, 2) == ["c d", "a e", "a b"]
    assert stopped(monkeypatch, chains, 3) == ["c d e", "a c d", "a b e"]


def test_thousands_of_pod_groups_are_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(stopped(monkeypatch, [[(str(i),)] for i in range(3000)], 1)) == 3000


def test_the_enumeration_of_stops_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice of units of two pods has five pods, and finding that out must not take 300 ** 3 steps."""
    units = [(SimpleNamespace(key="a"), SimpleNamespace(key="b"))]
    monkeypatch.setattr(choices, "eviction_units", lambda _situation, _key: units)
    running = [SimpleNamespace(group=i, node="n0", status=PodStatus.RUNNING) for i in range(300)]
    groups = [SimpleNamespace(key=i) for i in range(300)]
    trials: Any = SimpleNamespace(
        asked=(),
        situation=None,
        snapshot=SimpleNamespace(groups=groups, pods=running),
        admits=lambda _ops: None,
    )
    with pytest.raises(choices.TooMany):
        list(choices.stops(cast(Trials, trials), 5))


def test_moves_are_looked_for_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of 3,000 pods has another place, and the search over all nodes is made no more often than
    allowed.
    """
    looked: list[int] = []

    def nowhere(_situation: object, pods: Any, look: Callable[[], None]) -> Iterator[tuple[int, ...]]:
        look()
        looked.append(len(pods))
        yield from ()

    monkeypatch.setattr(choices, "new_places", nowhere)
    monkeypatch.setattr(choices, "_plain", lambda _trials, _pod: True)
    running = [SimpleNamespace(group=i, node="n0", status=PodStatus.RUNNING) for i in range(3000)]
    trials: Any = SimpleNamespace(asked=(), situation=None, snapshot=SimpleNamespace(pods=running))
    assert choices.least_of(cast(Trials, trials), None, choices.moves, lambda _decided: True) is None
    assert looked == [1] * choices.MOST_LOOKS
