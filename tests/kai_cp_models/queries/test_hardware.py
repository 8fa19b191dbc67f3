"""Which nodes the pods of a group cannot tell apart."""

from __future__ import annotations

from kai_cp_models.explain.situation import Situation
from kai_cp_models.plan import Plan
from kai_cp_models.pods import GroupKey
from kai_cp_models.queries.hardware import hardware_of
from kai_cp_models.settings import Settings
from tests.support import devices as dra
from tests.support.objects import Object
from tests.support.tiny import node, pod, world


def kinds(*slices: Object, constraints: tuple[Object, ...] = ()) -> list[int]:
    """The nodes, each with the number of the first that is alike; x's claim asks for two devices."""
    names = [one["spec"]["nodeName"] for one in slices]
    snapshot = world(
        [node(name) for name in names],
        [pod("x", resourceClaims=dra.claims("c"))],
        resourceSlices=slices,
        deviceClasses=[dra.device_class()],
        resourceClaims=[dra.claim("c", dra.exact(2), constraints=constraints)],
    )
    situation = Situation(snapshot, Settings(), Plan(decisions=(), unscheduled=()))
    found = hardware_of(situation, snapshot.group_by_key[GroupKey("default", "x")])
    return [found.index(one) for one in found]


def named(name: str, **values: str) -> Object:
    """A device with attributes."""
    return dra.device(name, attributes={key: {"string": value} for key, value in values.items()})


def test_serial_numbers_do_not_tell_nodes_apart_and_what_must_agree_does() -> None:
    slices = [
        dra.slice_of("n0", named("a", serial="1", root="r"), named("b", serial="2", root="r")),
        dra.slice_of("n1", named("a", serial="3", root="r"), named("b", serial="4", root="r")),
        dra.slice_of("n2", named("a", serial="5", root="r"), named("b", serial="6", root="s")),
        dra.slice_of("n3", named("a", serial="7", root="r")),
    ]
    assert kinds(*slices) == [0, 0, 0, 3]
    together = ({"requests": ["r"], "matchAttribute": f"{dra.DRIVER}/root"},)
    assert kinds(*slices, constraints=together) == [0, 0, 2, 3]
