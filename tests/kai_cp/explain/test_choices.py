"""Choices of pods to stop: how many there are does not matter, only how many are asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kai_cp.explain import choices
from kai_cp.explain.trials import Trials


def stopped(monkeypatch: pytest.MonkeyPatch, chains: list[list[tuple[str, ...]]], size: int) -> list[str]:
    """The choices of so many pods; ``chains``: by pod group, the pods of each eviction unit."""
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
