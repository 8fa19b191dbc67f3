"""How much evaluating the selectors of claims may cost a cycle, and what earlier cycles have evaluated."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from kai_cp_models.extras import Key
from kai_cp_models.settings import Limits

MOST_BYTES: Final = 64 << 20


class KeptAnswers(dict[Hashable, Any]):
    """Answers by question. Beyond ``MOST_BYTES`` all are forgotten."""

    _bytes = 0

    def put(self, key: Hashable, answer: Any, size_bytes: int) -> None:
        """Remember an answer. ``size_bytes``: with its key."""
        self._bytes += size_bytes
        if self._bytes > MOST_BYTES:
            self.clear()
            self._bytes = size_bytes
        self[key] = answer


class Paid:
    """What selectors said in this cycle and in earlier ones, which costs nothing to be asked again.

    What is forgotten is paid for once more: it is not free. ``verdicts`` of single devices are asked for only
    where devices have changed, and displace no ``answers`` about all of them.
    """

    def __init__(self) -> None:
        self.answers = KeptAnswers()
        self.verdicts = KeptAnswers()
        self._about: Hashable = None
        self._era = 0

    def about(self, world: Hashable) -> int:
        """The era: a number that changes with the devices and the limits."""
        if world != self._about:
            self._about = world
            self._era += 1
        return self._era


@dataclass(frozen=True)
class Judging:
    """How a cycle evaluates selectors.

    ``paid`` lives from cycle to cycle; None: nothing was paid for before. ``judged``: whether anything is to
    be decided; otherwise no expression is evaluated.
    """

    limits: Limits = Limits()
    paid: Paid | None = field(default=None, compare=False)
    judged: bool = True


JUDGING: Final = Key("judging", Judging())
