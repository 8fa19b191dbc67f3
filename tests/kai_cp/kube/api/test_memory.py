"""What is remembered, whatever is put and taken, against a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kai_cp.kube.api.memory import Memory

MOST = 3
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers()))


@given(STEPS)
def test_the_entries_that_were_put_last_are_remembered_in_their_order(
    steps: list[tuple[bool, int, int]],
) -> None:
    memory: Memory[int, int] = Memory(MOST)
    expected: list[tuple[int, int]] = []
    for put, key, value in steps:
        expected = [entry for entry in expected if entry[0] != key]
        if put:
            memory.put(key, value)
            expected = [*expected, (key, value)][-MOST:]
        else:
            memory.pop(key, None)
        assert list(memory.items()) == expected
