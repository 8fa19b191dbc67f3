"""Selectors by the labels that they name: the same ones as when each is asked."""

from __future__ import annotations

from random import Random

from kai_cp_models.pods import LabelSelector, Requirement
from kai_cp_models.selectors import Selecting, selects


def drawn(random: Random) -> LabelSelector | None:
    """A selector of up to three requirements over labels a to c with values 0 to 2, some of them twice."""

    def requirement() -> Requirement:
        operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        values = tuple(random.choices("012", k=random.randint(1, 4))) if operator.endswith("In") else ()
        return Requirement(random.choice("abc"), operator, values)

    if not random.randrange(9):
        return None
    return LabelSelector(tuple(requirement() for _ in range(random.randint(0, 3))))


def test_the_selectors_that_are_found_are_those_that_select_each_once_and_in_order() -> None:
    random, found = Random(1), 0
    for _ in range(200):
        things = [(drawn(random), i) for i in range(8)]
        index = Selecting(things)
        for _ in range(8):
            labels = {key: random.choice("012") for key in "abc" if random.randrange(3)}
            expected = [i for selector, i in things if selects(selector, labels)]
            assert index.of(labels) == expected
            found += len(expected)
    assert found > 2000
