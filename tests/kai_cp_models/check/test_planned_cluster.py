"""What the checker demands of places that a plan gives: who is there then, and who came before."""

from __future__ import annotations

import pytest

from kai_cp_models.check import violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import GroupKey, PodKey
from kai_cp_models.policy import ActionName
from kai_cp_models.settings import OptionalRules
from tests.support.objects import Object
from tests.support.plans import placed, solved
from tests.support.tiny import node, pod, world

SPREAD = OptionalRules.model_validate({"topology_spread": True})


def _made(kind: str, name: str, action: ActionName, node: str, *triggers: str) -> Decision:
    keys = tuple(GroupKey("default", trigger) for trigger in triggers)
    group = GroupKey("default", name)
    return Decision(kind, PodKey("default", name), group, node, action, triggers=keys)  # type: ignore[arg-type]


def _beside(app: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(("leaves", "allowed"), [("partner", False), ("other", True)])
def test_a_partner_that_leaves_is_none_for_a_pod_that_waits_for_its_place(leaves: str, allowed: bool) -> None:
    snapshot = world(
        [node("n0", gpus=2, labels={"kubernetes.io/hostname": "n0"})],
        [
            *(pod(name, "n0", gpus=1) for name in ("partner", "other")),
            pod("joins", gpus=1, priority="build", affinity=_beside("partner")),
        ],
        actions="preempt",
    )
    plan = [_made("Evict", leaves, "preempt", "n0", "joins"), _made("Nominate", "joins", "preempt", "n0")]
    faults = violations(snapshot, Plan(tuple(plan)))
    assert [fault.partition(":")[0] for fault in faults] == ([] if allowed else ["affinity"])


@pytest.mark.parametrize(("action", "allowed"), [("allocate", False), ("consolidation", True)])
def test_a_pod_counts_in_the_skew_of_one_that_a_later_action_places(
    action: ActionName, allowed: bool
) -> None:
    """Within an action the pod without a constraint may come after the one that has it."""
    alike = {"side": "l"}
    skew = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = [skew | {"labelSelector": {"matchLabels": alike}}]
    snapshot = world(
        [node(f"n{i}", gpus=2, labels={"zone": "ab"[i]}) for i in range(2)],
        [
            pod("free", gpus=1, labels=alike),
            pod("even", gpus=1, labels=alike, topologySpreadConstraints=spread),
        ],
        actions="allocate, consolidation",
    )
    plan = [_made("Nominate", "free", action, "n0"), _made("Nominate", "even", "consolidation", "n0")]
    faults = violations(snapshot, Plan(tuple(plan)), SPREAD)
    assert [fault.partition(":")[0] for fault in faults] == ([] if allowed else ["spread"])


def test_a_node_that_has_lost_the_gpus_that_are_shared_on_it_takes_no_pod() -> None:
    """Its GPUs are not advertised any more, and those that are shared there are charged (2.6)."""
    shared = pod("shares", "n0", notes={"gpu-fraction": "0.5"}, shares=["s"])
    snapshot = world([node("n0")], [shared, pod("waits")])
    faults = violations(snapshot, Plan((_made("Bind", "waits", "allocate", "n0"),)))
    assert faults[0] == "capacity: node n0 would hold 1 of 0 GPUs now (placed there: default/waits)"
    assert placed(solved(snapshot)) == set()
    assert placed(solved(world([node("n0")], [pod("waits")]))) == {"waits"}
