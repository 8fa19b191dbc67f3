"""Amounts in messages: every resource by its own unit (2.1)."""

from __future__ import annotations

import pytest

from kai_cp_models.shown import quantity, span
from tests.support.plans import solved
from tests.support.tiny import node, pod, world

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cpu", 1000, "1 CPU"),
        ("cpu", 2500, "2.5 CPUs"),
        ("gpu", 0, "0 GPUs"),
        ("memory", 3 * GIB // 2, "1.5 GiB memory"),
        ("memory", 512 * 2**20, "512 MiB memory"),
        ("memory", 0, "0 GiB memory"),
        ("memory", 20_480 * GIB, "20480 GiB memory"),
        ("pods", 1, "1 pod slot"),
        ("pods", 2, "2 pod slots"),
        ("example.com/nic", 2000, "2 example.com/nic"),
        ("example.com/nic", 2_000_000_000, "2000000 example.com/nic"),
        ("hugepages-2Mi", 4 * 2**20 * 1000, "4 MiB hugepages-2Mi"),
        ("ephemeral-storage", 20 * GIB, "20 GiB ephemeral-storage"),
        ("attachable-volumes-csi", 3000, "3 attachable-volumes-csi"),
        ("nvidia.com/mig-1g.5gb", 7, "7 nvidia.com/mig-1g.5gb"),
    ],
)
def test_every_resource_has_its_unit(name: str, value: int, words: str) -> None:
    assert quantity(name, value) == words


@pytest.mark.parametrize(
    ("seconds", "whole", "two", "one"),
    [
        (-1, "0s", "0s", "0s"),
        (45.4, "45s", "45s", "45s"),
        (5400, "1h30m", "1h30m", "1h"),
        (3607, "1h7s", "1h", "1h"),
        (93_784, "1d2h3m4s", "1d2h", "1d"),
    ],
)
def test_a_span_of_time_is_told_in_as_many_units_as_wanted(
    seconds: float, whole: str, two: str, one: str
) -> None:
    assert (span(seconds), span(seconds, 2), span(seconds, 1)) == (whole, two, one)


@pytest.mark.parametrize(
    ("name", "asked", "offered", "words"),
    [
        ("example.com/nic", "1", None, "asks for 1 example.com/nic, no node has any"),
        (
            "ephemeral-storage",
            "20Gi",
            "10Gi",
            "asks for 20 GiB ephemeral-storage, the largest node has 10 GiB",
        ),
        ("hugepages-2Mi", "8Mi", "4Mi", "asks for 8 MiB hugepages-2Mi, the largest node has 4 MiB"),
    ],
)
def test_messages_tell_what_users_wrote(name: str, asked: str, offered: str | None, words: str) -> None:
    offers = {} if offered is None else {name: offered}
    plan = solved(world([node(offers=offers)], [pod("a", requests={"cpu": "1", name: asked})]))
    assert words in plan.unscheduled[0].message
