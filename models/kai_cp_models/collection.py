"""Reading and deciding without garbage collection: both make millions of objects, and hardly any of them
is part of a reference cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def collector_held() -> Iterator[None]:
    """Stop the collector while a cycle is decided, after which hardly any object remains; may be nested."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def no_collection(*, for_good: bool = False) -> Iterator[None]:
    """Stop the collector while a snapshot is read, which halves the time; may be nested.

    ``for_good``: it never looks at what was made; for processes that read a few snapshots and end.
    """
    enabled = gc.isenabled()
    with collector_held():
        try:
            yield
        finally:
            if enabled or for_good:
                gc.freeze()
            if enabled and not for_good:
                # Both together age all objects at once; otherwise the next collections look at every new one.
                gc.unfreeze()


def following(*, first: bool) -> AbstractContextManager[None]:
    """Stop the collector during one of many readings of a cluster.

    It never looks at what the ``first`` one made. Later ones make little, which it looks at as usual. If
    that were aged too, all that was frozen would come back, and to look at it takes a second for 80,000 pods.
    """
    return no_collection(for_good=True) if first else collector_held()
