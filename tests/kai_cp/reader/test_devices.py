"""ResourceClaims: whose users are gone, so that what is allocated to them comes free."""

from __future__ import annotations

from typing import Any

import pytest

from kai_cp.reader import parse
from kai_cp_models.records.devices import DEVICES
from tests.support import tiny
from tests.support.devices import allocation, claim, exact
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
