"""The garbage collector is held during a reading, nested readings included, and always runs again
afterwards.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from kai_cp_models.collection import collector_held, following, no_collection
from kai_cp_models.engine import decide
from kai_cp_models.settings import Settings
from tests.properties.reasking import read
from tests.support.clusters import random_cluster


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


def test_collection_is_held_until_the_outermost_reading_ends() -> None:
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_resumes_after_an_error() -> None:
    with pytest.raises(ValueError, match="odd"), no_collection():
        raise ValueError("odd")
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("for_good", [False, True])
def test_objects_kept_for_good_are_never_collected(for_good: bool) -> None:
    gc.unfreeze()
    with no_collection(for_good=for_good):
        made: list[dict[str, int]] = [{} for _ in range(10)]
    assert (gc.get_freeze_count() >= len(made)) == for_good


def test_objects_of_a_reading_that_is_nested_are_kept_for_good() -> None:
    gc.unfreeze()
    with collector_held():
        with following(first=True):
            made: list[dict[str, int]] = [{} for _ in range(10)]
        assert gc.get_freeze_count() >= len(made)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_later_reading_brings_back_nothing_that_the_first_one_froze() -> None:
    gc.unfreeze()
    with following(first=True):
        made: list[dict[str, int]] = [{} for _ in range(10)]
    for _ in range(2):
        with following(first=False):
            assert not gc.isenabled()
            with no_collection():
                pass
        assert gc.isenabled()
        assert gc.get_freeze_count() >= len(made)


@pytest.mark.parametrize("seed", range(4))
def test_a_decision_leaves_no_record_to_the_collector(seed: int) -> None:
    """What is in no reference cycle is freed at once; the collector would look at all of it."""
    snapshot = read(random_cluster(seed))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    decide(snapshot, Settings(), deadline=time.monotonic() + 3600)
    gc.collect()
    names = {type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("kai_cp")}
    assert not names
