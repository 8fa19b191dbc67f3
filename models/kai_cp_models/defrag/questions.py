"""Questions and goals of defragmentation as users write them."""

from __future__ import annotations

import re
from typing import Final

from kai_cp_models.defrag.problem import DefragQuestion
from kai_cp_models.snapshot import Snapshot

_GANG: Final = re.compile(r"gang=(\d{1,6})x(\d{1,4})(?:@(.+))?", re.ASCII)
_GOAL: Final = re.compile(r"(.+)=(\d{1,6})", re.ASCII)


class BadQuestion(ValueError):
    """A question that cannot be asked; the text says why."""


def question_of(snapshot: Snapshot, free: str | None, gang: str | None) -> DefragQuestion:
    """The question of ``--free`` or ``--for``; free nodes if neither is given. Raises ``BadQuestion``."""
    if free is not None and gang is not None:
        raise BadQuestion("--free and --for are two questions; ask one of them")
    if gang is not None:
        match = _GANG.fullmatch(gang)
        if match is None:
            raise BadQuestion(f"--for: {gang!r} is not gang=PxG or gang=PxG@LEVEL, such as gang=8x8@rack")
        pods, gpus = int(match[1]), int(match[2])
        if not pods or not gpus:
            raise BadQuestion(f"--for: {gang!r}: a gang has at least one pod of one GPU")
        return DefragQuestion(_level(snapshot, match[3], "--for") if match[3] else None, pods, gpus)
    if free is None or free == "nodes":
        return DefragQuestion()
    return DefragQuestion(_level(snapshot, free, "--free"))


def goal_of(snapshot: Snapshot, text: str) -> tuple[DefragQuestion, int]:
    """The question of ``defrag.goal`` and the wanted value: ``nodes=4``, ``gang=8x8@rack=2``.

    Raises ``BadQuestion``, which names the setting.
    """
    match = _GOAL.fullmatch(text)
    if match is None or not int(match[2]):
        raise BadQuestion(f"defrag.goal: {text!r} is not nodes=4, rack=1 or gang=8x8@rack=2")
    what = match[1]
    try:
        question = question_of(snapshot, *((None, what) if what.startswith("gang=") else (what, None)))
    except BadQuestion as problem:
        raise BadQuestion(
            str(problem).replace("--for", "defrag.goal").replace("--free", "defrag.goal")
        ) from None
    return question, int(match[2])


def _level(snapshot: Snapshot, name: str, option: str) -> str:
    """The node label that a level's label or alias means."""
    known: list[str] = []
    for topology in snapshot.topologies:
        if name in topology.levels:
            return name
        aliases = dict(topology.aliases)
        if name in aliases:
            return aliases[name]
        known += [*topology.levels, *aliases]
    some = f"; there are {', '.join(sorted(set(known)))}" if known else "; the snapshot has no Topology"
    raise BadQuestion(f"{option}: {name!r} is no level of a Topology{some}")
