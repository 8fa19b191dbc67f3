"""What defragmentation may be asked for, as users write it: free nodes or domains, and gangs that fit."""

from __future__ import annotations

import re
from typing import Final

_GANG: Final = re.compile(r"gang=(\d{1,6})x(\d{1,4})(?:@(.+))?", re.ASCII)
PATTERN: Final = r"(.+)=([0-9]{1,6})"
_GOAL: Final = re.compile(PATTERN)


def goal(text: str) -> tuple[str, int]:
    """What is wanted, and how much of it: ``nodes=4``, ``rack=1``, ``gang=8x8@rack=2``.

    Whether a cluster has the level is seen only there. Raises ``ValueError`` for a text that is not a goal.
    """
    found = _GOAL.fullmatch(text)
    if found is None or not int(found[2]):
        raise ValueError(f"{text!r} is not nodes=4, rack=1 or gang=8x8@rack=2")
    if found[1].startswith("gang="):
        gang(found[1])
    return found[1], int(found[2])


def gang(text: str) -> tuple[int, int, str | None]:
    """Pods, GPUs of each, and the level of a gang: ``gang=8x8@rack``; without a level None.

    Raises ``ValueError`` for a text that is not a gang.
    """
    found = _GANG.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not gang=PxG or gang=PxG@LEVEL, such as gang=8x8@rack")
    pods, gpus = int(found[1]), int(found[2])
    if not pods or not gpus:
        raise ValueError(f"{text!r}: a gang has at least one pod of one GPU")
    return pods, gpus, found[3]
