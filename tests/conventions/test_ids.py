"""The names of tests, which all workers must find alike."""

from __future__ import annotations

import gzip

import pytest


@pytest.mark.parametrize(("packed", "number"), [(gzip.compress(b"a"), 1), (gzip.compress(b"b"), 2)])
def test_bytes_name_no_test(request: pytest.FixtureRequest, packed: bytes, number: int) -> None:
    assert packed
    assert request.node.name == f"test_bytes_name_no_test[packed-{number}]"
