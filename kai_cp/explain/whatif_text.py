"""The answer of what-if as a person reads it, at 80 columns."""

from __future__ import annotations

from kai_cp.decisions import cut_during, named_stages
from kai_cp.explain.operations import path_of
from kai_cp.explain.text import as_of, describe, describe_change, number, of_queue, part
from kai_cp.json_types import Json
from kai_cp.report.terminal import gpus
from kai_cp_models.shown import plural


def lines(document: Json, name: str) -> list[str]:
    """The lines of one answer about the snapshot of that name."""
    diff, before, after = document["diff"], document["before"], document["after"]
    found = _difference(document) if document["ops"] or "cycles" in diff else []
    if least := document.get("least"):
        found += part("Least", _least(least))
    if bound := document.get("bound"):
        found += part(
            "Bound",
            f"no scheduler has more than {gpus(bound['gpus'])} in use without stopping anything; "
            f"this cycle has {number(bound['inUse'])}{_price(after)}",
        )
    during = cut_during(named_stages([*before["stages"], *after["stages"]]))
    return found + as_of(document["now"], name, during)


def _difference(document: Json) -> list[str]:
    """What differs between the clusters before and after; a question without a change has only one."""
    diff, before, after = document["diff"], document["before"], document["after"]
    found = [_first(diff)]
    if document["ops"]:
        found += part("Change", describe_change(document))
    found += part("GPUs", f"{number(diff['gpusBefore'])} held before, {number(diff['gpusAfter'])} after")
    for label, key in (("Gain", "gain"), ("Lose", "lose"), ("Added", "addedPlaced")):
        if diff[key]:
            found += part(label, _listed(diff[key]))
    which = ", in the first cycle" if "cycles" in diff else ""
    if waiting := _waiting(document):
        found += part("Waiting", _listed(waiting) + which)
    found += part(
        "Evicted",
        f"{plural(diff['lostBefore'], 'pod')} before, {diff['lostAfter']} after; "
        f"moved {diff['movedBefore']} before, {diff['movedAfter']} after",
    )
    refused = plural(len(before["pending"]), "pod group")
    found += part("Refused", f"{refused} before, {len(after['pending']):,} after{which}")
    if "cycles" in diff:
        end = (
            f"settled after {plural(diff['cycles'], 'cycle')}"
            if diff["settled"]
            else "not settled within --most"
        )
        found += part("Cycles", end)
    return found


def _waiting(document: Json) -> list[str]:
    """The pod groups that were added or changed and still wait, each with its reason."""
    ops, diff = document["ops"], document["diff"]
    known = {one["podGroup"] for one in document["before"]["pending"]} | {*diff["lose"]}
    changed = {path_of(op["podGroup"]) for op in ops if op.get("podGroup")} - {*diff["gain"]}
    adds = any(op["op"] == "add" for op in ops)
    return [
        f"{one['podGroup']} ({one['reason']})"
        for one in document["after"]["pending"]
        if one["podGroup"] in changed or (adds and one["podGroup"] not in known)
    ]


def _first(diff: Json) -> str:
    gain, lose, new = len(diff["gain"]), len(diff["lose"]), len(diff["addedPlaced"])
    if not gain and not lose and not new:
        return "No pod group gains or loses."
    counts = (
        (gain, "gains", "gain"),
        (lose, "loses", "lose"),
        (new, "that was added runs", "that were added run"),
    )
    words = [
        f"{plural(count, 'pod group')} {one if count == 1 else more}" for count, one, more in counts if count
    ]
    return f"{', '.join(words)}."


def _price(after: Json) -> str:
    """The pods that the cycle evicts for its GPUs in use; a cycle can exceed the bound only by evictions."""
    return f", and evicts {plural(after['evicted'], 'pod')}" if after["evicted"] else ""


def _least(least: Json) -> str:
    if least["amount"] is None:
        return str(least.get("because") or "no amount helps")
    if not least["amount"]:
        return "nothing is needed"
    proved = "" if least["proof"] == "proved" else " (perhaps fewer would do)"
    text = describe(least) + proved
    if least["kind"] in ("stop", "move") and least["amount"] > 1:
        text += f", {plural(least['amount'], 'pod')} in all"
    below = least.get("below")
    if below:
        resource = least["ops"][0].get("resource")
        less = f"with {number(below['amount'])}"
        if resource:
            less = f"raised by {of_queue(resource, below['amount'])}"
        text += f"; {less}, {_listed(below['waiting'])} would still wait"
    return text


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
