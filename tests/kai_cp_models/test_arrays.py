"""Sequences of objects that are followed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.arrays import FollowedItems, Kept


def test_new_items_and_the_names_of_gone_ones_are_told() -> None:
    """Two nulls are one object, and both are new; the first of a hundred has gone, the others stay."""
    gone, *stay = [{"name": f"{number}"} for number in range(100)]
    followed: FollowedItems[dict[str, str] | None, str] = FollowedItems()
    followed.follow([gone, *stay], lambda item: item["name"] if item else "")
    assert followed.follow([None, *stay, None], lambda item: item["name"] if item else "") == (
        [("", None), ("", None)],
        ["0"],
    )
    assert followed.follow([None, *stay[1:]], lambda _: "new") == ([], ["1"])


@given(st.lists(st.lists(st.integers(0, 8)), min_size=1, max_size=5))
def test_each_object_is_found_where_it_was(sequences: list[list[int]]) -> None:
    """``sequences``: of these objects, each in any order and as often as it likes."""
    objects = [object() for _ in range(9)]
    kept: Kept[object] = Kept()
    last: list[int] = []
    for numbers in sequences:
        kept, origin, left = kept.follow([objects[i] for i in numbers])
        assert [None if i < 0 else last[i] for i in origin] == [i if i in last else None for i in numbers]
        assert {last[i] for i in left} == set(last) - set(numbers)
        last = numbers
