"""What rules and options add to a snapshot: typed values under typed keys.

A rule that brings records of its own declares a :class:`Key` beside them. The reader fills it, the rule and
its second statement in ``check`` read it, and no field of the snapshot is added for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:  # the snapshot carries extras
    from kai_cp_models.pods import PodKey

T = TypeVar("T")
_NONE: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """A name in :class:`Extras` and the type of its value. ``default``: the value if none was given."""

    name: str
    default: T


class Extras:
    """Values by key; never changed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] = _NONE) -> None:
        self._values = values

    def __getitem__(self, key: Key[T]) -> T:
        """The value of a key, its default where none was given."""
        found: T = self._values.get(key.name, key.default)
        return found

    def having(self, key: Key[T], value: T) -> Extras:
        """The same values, and one for ``key``."""
        return Extras({**self._values, key.name: value})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extras) and self._values == other._values


def extra(key: Key[T], value: T) -> Extras:
    """The extras of a snapshot that has one."""
    return Extras().having(key, value)


CLAIM_MILLI_GPUS: Final[Key[Mapping[PodKey, int]]] = Key("claim_milli_gpus", {})
"""Milli-GPUs that the claims of pods add to their requests, by pod (2.5); pods without any are left out."""
