"""How much evaluating the selectors of claims may cost a cycle, and what earlier cycles have evaluated."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

from kai_cp_models.extras import Key
from kai_cp_models.settings import Limits

MOST_BYTES: Final = 64 << 20


class Paid:
    """What selectors said in this cycle and in earlier ones, which costs nothing to be asked again.

    Beyond ``MOST_BYTES`` all is forgotten, and paid for once more: what is not remembered is not free.
    """

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._bytes = 0
        self._devices: Hashable = None
        self.era = 0
        """Changes with the devices."""

    def about(self, devices: Hashable) -> int:
        """The era of these devices."""
        if devices != self._devices:
            self._devices = devices
            self.era += 1
        return self.era

    def answer(self, key: Hashable) -> Any:
        """What is remembered; None: nothing."""
        return self._answers.get(key)

    def remember(self, key: Hashable, answer: Any, size_bytes: int) -> None:
        """``size_bytes``: of the answer with its key."""
        self.grow(size_bytes)
        self._answers[key] = answer

    def grow(self, size_bytes: int) -> None:
        """An answer is about to take more."""
        self._bytes += size_bytes
        if self._bytes > MOST_BYTES:
            self._answers, self._bytes = {}, size_bytes


@dataclass(frozen=True)
class Judging:
    """How a cycle evaluates selectors.

    ``paid`` lives from cycle to cycle; None: nothing was paid for before. ``judged``: whether anything is to
    be decided; otherwise no expression is evaluated.
    """

    limits: Limits = Limits()
    paid: Paid | None = None
    judged: bool = True


JUDGING: Final = Key("judging", Judging())
