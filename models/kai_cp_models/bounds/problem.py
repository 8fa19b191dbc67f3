"""The input of the bounds: pods, and sets of equal nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WHOLE: Final = 1000
"""Milli-GPUs of one device."""


@dataclass(frozen=True, slots=True)
class BinItem:
    """Equal pods: ``count`` of them, each ``milli`` of every one of ``gpus`` devices (1000 = whole).

    ``cpu`` in milli-CPUs, ``memory`` in MiB; ``allowed``: whether a node of each bin may take it.
    """

    cpu: int
    memory: int
    gpus: int
    milli: int
    count: int
    allowed: tuple[bool, ...]

    @property
    def value(self) -> int:
        """Milli-GPUs of one pod."""
        return self.gpus * self.milli

    @property
    def shared(self) -> bool:
        """Whether it takes a part of one device."""
        return self.gpus == 1 and self.milli < WHOLE


@dataclass(frozen=True, slots=True)
class Bin:
    """Equal nodes: ``count`` of them with ``devices`` GPUs, milli-CPUs and MiB each."""

    cpu: int
    memory: int
    devices: int
    count: int
