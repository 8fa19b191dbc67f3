"""Questions and goals of defragmentation as users write them."""

from __future__ import annotations

from kai_cp_models.defrag import goals
from kai_cp_models.defrag.problem import DefragQuestion
from kai_cp_models.snapshot import Snapshot


class BadQuestion(ValueError):
    """A question that cannot be asked; the text says why."""


def question_of(snapshot: Snapshot, free: str | None, gang: str | None) -> DefragQuestion:
    """The question of ``--free`` or ``--for``; free nodes if neither is given. Raises ``BadQuestion``."""
    if free is not None and gang is not None:
        raise BadQuestion("--free and --for are two questions; ask one of them")
    if gang is not None:
        try:
            pods, gpus, level = goals.gang(gang)
        except ValueError as problem:
            raise BadQuestion(f"--for: {problem}") from None
        return DefragQuestion(_level(snapshot, level, "--for") if level else None, pods, gpus)
    if free is None or free == "nodes":
        return DefragQuestion()
    return DefragQuestion(_level(snapshot, free, "--free"))


def question_like(text: str) -> str:
    """The options that ask for what a goal wants, as the end of a sentence; "" for a text that is no goal."""
    try:
        what, wanted = goals.goal(text)
    except ValueError:
        return ""
    return f"; ask {'--for' if what.startswith('gang=') else '--free'} {what} --most {wanted}"


def goal_of(snapshot: Snapshot, text: str) -> tuple[DefragQuestion, int]:
    """The question of ``defrag.goal`` and the wanted value: ``nodes=4``, ``gang=8x8@rack=2``.

    Raises ``BadQuestion``, which names the setting.
    """
    try:
        what, wanted = goals.goal(text)
    except ValueError as problem:
        raise BadQuestion(f"defrag.goal: {problem}") from None
    try:
        question = question_of(snapshot, *((None, what) if what.startswith("gang=") else (what, None)))
    except BadQuestion as problem:
        raise BadQuestion(
            str(problem).replace("--for", "defrag.goal").replace("--free", "defrag.goal")
        ) from None
    return question, wanted


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
    raise BadQuestion(f"{option}: {name!r} is not a level of a Topology{some}")
