"""The names that a message offers for one that is not there."""

from __future__ import annotations

import pytest

from kai_cp.explain.draft import nearest


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu-99", "; the nearest: gpu-9, gpu-1, gpu-2"),
        ("gpu-3x", "; the nearest: gpu-3, gpu-1, gpu-2"),
        ("node", "; there are gpu-1, gpu-2, gpu-3 and 1 more"),
    ],
)
def test_the_nearest_names_come_first_and_equally_near_ones_in_their_order(name: str, said: str) -> None:
    assert nearest(name, ["gpu-9", "gpu-1", "gpu-3", "gpu-2"]) == said
