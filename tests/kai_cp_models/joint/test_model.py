"""The size of a joint model is counted while it is built, and a model that is too large is not built."""

from __future__ import annotations

from time import monotonic

import pytest

from kai_cp_models.budget import Budget
from kai_cp_models.cycle import Refusal
from kai_cp_models.joint import admission
from kai_cp_models.joint.admission import Admission
from kai_cp_models.joint.model import JointModel, ModelTooLarge
from kai_cp_models.ledger import Ledger
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from kai_cp_models.solver import cp_model
from tests.kai_cp_models.joint.build import NodeModel, problem
from tests.support.worlds import cluster, node, pod, spec


def two_kinds() -> Snapshot:
    """Two kinds of nodes and two kinds of pods, of which each fits on each: four counts."""
    nodes = [node("n1", 8, labels={"pool": "a"}), node("n2", 8, labels={"pool": "b"})]
    return cluster([pod("a-0", spec=spec(1)), pod("b-0", spec=spec(2))], nodes=nodes)


@pytest.mark.parametrize(("kind", "counts"), [(NodeModel, 4), (JointModel, 2)])
def test_a_model_beyond_the_limit_is_refused(kind: type[JointModel], counts: int) -> None:
    """The nodes are one cell, because no pod selects a pool."""
    ledger, asks, _ = problem(two_kinds())
    made = kind(ledger, asks, max_variables=counts).cp.proto.variables
    assert sum(one.name.startswith("x[") for one in made) == counts
    with pytest.raises(ModelTooLarge):
        kind(ledger, asks, max_variables=counts - 1)


@pytest.mark.parametrize("kind", [NodeModel, JointModel])
def test_a_model_that_is_too_large_has_no_counts_yet(
    kind: type[JointModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making them takes longer than counting them."""
    made: list[str] = []
    plain = cp_model.CpModel.new_int_var

    def noted(model: cp_model.CpModel, least: int, most: int, name: str) -> cp_model.IntVar:
        made.append(name)
        return plain(model, least, most, name)

    monkeypatch.setattr(cp_model.CpModel, "new_int_var", noted)
    ledger, asks, _ = problem(two_kinds())
    kind(ledger, asks)
    assert any(name.startswith("x[") for name in made)
    made.clear()
    with pytest.raises(ModelTooLarge):
        kind(ledger, asks, max_variables=1)
    assert made == []


def test_allocate_tries_no_further_model_after_one_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    def too_large(*_: object) -> JointModel:
        nonlocal tried
        tried += 1
        raise ModelTooLarge

    monkeypatch.setattr(admission, "JointModel", too_large)
    snapshot = two_kinds()
    ledger, asks, _ = problem(snapshot)
    settings = Settings().solver
    found = Admission(ledger, snapshot.pods, settings, Budget.of(settings, snapshot, monotonic() + 60))
    found.admitted(asks[0])
    for _ in range(2):
        outcome = found.decide(Ledger.of(snapshot), asks[1], Refusal("NodeFragmented", "no place", False))
        assert isinstance(outcome, Refusal)
        assert not outcome.proved
    assert tried == 1
