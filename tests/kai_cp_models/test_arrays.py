"""What came and went in a list of objects."""

from __future__ import annotations

from kai_cp_models.arrays import came_and_went


def test_new_items_and_what_is_known_of_gone_ones_are_told() -> None:
    """Two nulls are one object, and both are new; the first of a hundred has gone, the others stay."""
    gone, *stay = [{"name": f"{number}"} for number in range(100)]
    known = {id(item): item["name"] for item in (gone, *stay)}
    assert came_and_went(known, [None, *stay, None]) == ([None, None], ["0"])
    assert list(known) == [id(item) for item in stay]
