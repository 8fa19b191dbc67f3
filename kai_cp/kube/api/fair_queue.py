"""Items that wait for a thread: namespaces take turns, so that thousands of items of one do not delay those
of another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items by namespace; namespaces take turns, and the items of each come in the order of their first
    submission.

    The queue has no lock; its owner has one.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[Hashable, Item]] = OrderedDict()
        """By namespace; the first has the next turn."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has(self, namespace: str, key: Hashable) -> bool:
        """Whether an item of that key waits."""
        return key in self._waiting.get(namespace, ())

    def put(self, namespace: str, key: Hashable, item: Item) -> None:
        """Add an item; it replaces one with the same key that still waits."""
        own = self._waiting.setdefault(namespace, OrderedDict())
        self._count += key not in own
        own[key] = item

    def take(self, passed_over: Container[str] = ()) -> Item | None:
        """The next item of the namespace whose turn it is (none ``passed_over``); None if there is none."""
        namespace = next((name for name in self._waiting if name not in passed_over), None)
        if namespace is None:
            return None
        self._waiting.move_to_end(namespace)
        return self._oldest(namespace)

    def drop(self) -> Item:
        """Forget the oldest item of the namespace that has most, and return it."""
        return self._oldest(max(self._waiting, key=lambda namespace: len(self._waiting[namespace])))

    def discard(self, namespace: str, key: Hashable) -> None:
        """Remove an item, if it waits."""
        own = self._waiting.get(namespace, OrderedDict())
        if key in own:
            del own[key]
            self._taken(namespace)

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._count = 0

    def _oldest(self, namespace: str) -> Item:
        item = self._waiting[namespace].popitem(last=False)[1]
        self._taken(namespace)
        return item

    def _taken(self, namespace: str) -> None:
        self._count -= 1
        if not self._waiting[namespace]:
            del self._waiting[namespace]
