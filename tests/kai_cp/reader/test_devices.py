"""DRA objects: ResourceClaims whose users are gone, and what ResourceSlices say of one pool."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.records.devices import DEVICES
from tests.support import tiny
from tests.support.devices import allocation, claim, device, exact, slice_of
from tests.support.objects import NOW, Object

GOING: Object = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OF_V: Object = {"ownerReferences": [{"kind": "Pod", "name": "v", "uid": "default-v", "controller": True}]}


def held(*users: str, meta: Object | None = None) -> Object:
    return claim("c", exact(), users=users, held=allocation("n0", "d"), **(meta or {}))


def v(on: str = "n0", phase: str = "Running", *, meta: Object | None = None, **spec: Any) -> Object:
    made = tiny.pod("v", on, status={"phase": phase}, **spec)
    made["metadata"] |= meta or {}
    made["status"]["phase"] = phase
    return made


def other(**user: str) -> Object:
    """A claim reserved for something that is no such pod."""
    made = held("v")
    made["status"]["reservedFor"][0] |= user
    return made


@pytest.mark.parametrize(
    ("held", "pods", "gone"),
    [
        (held("v"), [], {"default-v"}),
        (held("v"), [v()], set()),
        (held("v", "w"), [v()], {"default-w"}),
        # A pod of that name that was made anew, and pods that have ended.
        (held("v"), [v(meta={"uid": "new"})], {"default-v"}),
        (held("v"), [v(phase="Succeeded")], {"default-v"}),
        (held("v"), [v(phase="Failed")], {"default-v"}),
        # It waits; it is told to stop, on its node and before it has one.
        (held("v"), [v("", "Pending")], set()),
        (held("v"), [v(meta=GOING)], set()),
        (held("v"), [v("", "Pending", meta=GOING)], {"default-v"}),
        # Pods that are no part of the snapshot: on nodes outside it, of other schedulers, unreadable.
        (held("v"), [v("elsewhere")], set()),
        (held("v"), [v(schedulerName="other", meta={"annotations": {}})], set()),
        (held("v"), [v(containers="?")], set()),
        # Without a user it stays allocated, until it is deleted or its owner is gone.
        (held(), [], set()),
        (held(meta=GOING), [], {"claim-c"}),
        (held("v", meta=GOING), [v()], {"claim-c"}),
        (held(meta=OF_V), [v("", "Pending")], set()),
        (held(meta=OF_V), [], {"claim-c"}),
        # What is no pod, and what has no name, is in use.
        (other(resource="podgroups"), [], set()),
        (other(name=""), [], set()),
    ],
)
def test_users_that_are_gone(held: Object, pods: list[Object], gone: set[str]) -> None:
    raw = tiny.cluster([tiny.node()], [], resourceClaims=[held])
    raw["rawObjects"]["pods"] = pods
    made = parse(raw, now=NOW.timestamp()).extras[DEVICES]
    assert made is not None
    assert made.claims["default", "c"].gone == gone


def part(name: str, node: str, *devices: str, pool: str = "n1", generation: int = 1, size: int = 1) -> Object:
    """A slice called ``name`` of ``pool`` with devices of ``node``; "": of all nodes."""
    place: Object = {"nodeName": node} if node else {"allNodes": True}
    made = slice_of(pool, *map(device, devices), **place)
    made["metadata"]["name"] = name
    made["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": size}
    return made


@pytest.mark.parametrize(
    ("others", "devices", "aside"),
    [
        # What a slice of n0 says of the pool that is named after n1 takes nothing from n1.
        ([part("a", "n0", "d")], ["n1/d"], ["ResourceSlice a"]),
        ([part("a", "n0", "d", "e")], ["n1/d"], ["ResourceSlice a"]),
        ([part("a", "n0", "e")], ["n1/d", "n0/e"], []),
        ([part("a", "n0", "e", generation=9)], ["n1/d", "n0/e"], []),
        ([part("a", "n0", "e", size=9)], ["n1/d"], ["ResourcePool nic.example.com/n1"]),
        ([part("a", "", "d")], ["n1/d"], ["ResourceSlice a"]),
        # A newer slice for the same node replaces, one that lists a device twice does not count.
        ([part("z", "n1", "e", generation=2)], ["n1/e"], []),
        ([part("a", "n0", "e", "e", pool="n0")], ["n1/d"], ["ResourceSlice a"]),
        # A pool of both nodes: its name tells nothing, so the first slice by name counts.
        ([part("a", "n0", "e", pool="net"), part("b", "n1", "e", pool="net")],
         ["n1/d", "n0/e"], ["ResourceSlice b"]),
        ([part("a", "n0", "e", pool="net", size=2), part("b", "n1", "f", pool="net", size=2)],
         ["n1/d", "n0/e", "n1/f"], []),
        ([part("a", "n0", "e", pool="net", size=2)], ["n1/d"], ["ResourcePool nic.example.com/net"]),
    ],
)  # fmt: skip
def test_slices_name_each_device_once(others: list[Object], devices: list[str], aside: list[str]) -> None:
    """One slice of n1, named b-mine, lists d; the names of others come before and after it."""
    slices = [part("b-mine", "n1", "d"), *others]
    found = tiny.world([tiny.node("n0"), tiny.node("n1")], [], resourceSlices=slices)
    objects = found.extras[DEVICES]
    assert objects is not None
    assert [f"{one.node or ''}/{one.id.device}" for one in objects.devices] == devices
    assert [one.item for one in found.set_aside] == aside
