"""The garbage collector is held during a reading, nested readings included, and always runs again
afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kai_cp_models.collection import no_collection


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_it_is_held_until_the_outermost_reading_ends() -> None:
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_comes_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="odd"), no_collection():
        raise ValueError("odd")
    assert gc.isenabled()


def test_who_held_it_already_keeps_it_held() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("for_good", [False, True])
def test_only_for_good_is_never_looked_at_again(for_good: bool) -> None:
    gc.unfreeze()
    with no_collection(for_good=for_good):
        made: list[dict[str, int]] = [{} for _ in range(10)]
    assert (gc.get_freeze_count() >= len(made)) == for_good
