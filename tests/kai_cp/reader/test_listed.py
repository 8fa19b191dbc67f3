"""The objects of one list of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kai_cp.reader.listed import ListedObjects


def test_set_operations_on_the_keys_of_a_list_visit_no_object_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: ListedObjects) -> Iterator[tuple[str, str]]:
        raise AssertionError("visited one by one")

    listed = ListedObjects({("", name): {} for name in "abc"})
    monkeypatch.setattr(ListedObjects, "__iter__", refused)
    assert listed.keys() - {("", "a")} == {("", "b"), ("", "c")}
