"""An explanation as text: the first line answers, the rest is evidence; 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any, Final

from kai_cp.explain.rule_names import rule_words
from kai_cp.json_types import Json, Object
from kai_cp.keys import GPU
from kai_cp.report.headline import cut_words
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.shown import plural, span

WIDTH: Final = 80
_LABEL: Final = 9


def lines(entry: Json) -> list[str]:
    """The lines of one explanation."""
    found = list(_head(entry))
    if entry["reason"] and entry["state"] == "pending":
        found += part("Reason", f"{entry['reason']}: {entry['message']}")
    elif entry["message"] and not entry["evictedBy"]:
        found += part("State", entry["message"])
    if entry["state"] == "pending":
        found += part("Proof", _proof(entry))
        found += _ahead(entry)
        found += _fixes(entry)
        found += part("Start", _start(entry))
    if entry["evictedBy"]:
        found += _evicted(entry["state"], entry["evictedBy"])
    return found


def as_of(now: str, name: str, during: str | None) -> list[str]:
    """The time as of which a snapshot was read, and what of its cycle the deadline has cut."""
    return part("As of", f"{now}, {name}" + (f". {cut_words(during)}" if during else ""))


def _head(entry: Json) -> Iterator[str]:
    needs = entry["needs"]
    words = [f"{entry['state'].upper()}  podgroup {entry['podGroup']}", f"queue {entry['queue'] or '(none)'}"]
    if needs["pods"]:
        asked = _gpus(needs["gpu"]) if needs["gpu"] else of_queue("cpu", needs["cpu"])
        words.append(f"needs {plural(needs['pods'], 'pod')} with {asked}")
    if entry["waitingSeconds"]:
        words.append(f"waiting {span(entry['waitingSeconds'], 2)}")
    place = entry["position"]
    if place["at"] is not None and entry["state"] == "pending":
        words.append(f"position {place['at']} of {place['of']}")
    yield from _flow(words)


def _flow(words: list[str]) -> Iterator[str]:
    """Words on as few lines as they fit, never broken inside."""
    line = ""
    for word in words:
        if line and len(line) + 2 + len(word) > WIDTH:
            yield line
            line = " " * _LABEL + word
        else:
            line = f"{line}  {word}" if line else word
    yield line


def part(label: str, text: str) -> list[str]:
    """A label and its text, which begins in the same column on every line. Names are never broken."""
    body = wrap(text, WIDTH - _LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{label:<{_LABEL}}{body[0]}", *(" " * _LABEL + line for line in body[1:])]


def _proof(entry: Json) -> str:
    if entry["reason"] == "FitsAsItIs":
        return "none: no rule blocks it"
    if entry["proof"] != "proved":
        return "none: no plan was found, and nothing proves that there is none"
    if not entry["blocking"]:
        return "by the cycle; there was no time to find out which rules block it"
    if not any(entry["blocking"]):
        return "no plan is possible while there are no nodes"
    sets = "; nor with: ".join(", ".join(map(rule_words, one)) for one in entry["blocking"])
    words = f"no plan is possible with: {sets}"
    if not entry["minimal"]:
        words += " (perhaps not all of them are needed)"
    if others := entry["notInvolved"]:
        words += f"; not involved: {', '.join(map(rule_words, others))}"
    return words


def _ahead(entry: Json) -> list[str]:
    ahead = entry["position"]["ahead"]
    if not ahead:
        return []
    first = ahead[-1]
    groups = plural(entry["position"]["at"] - 1, "pod group")
    words = f"{_gpus(entry['position']['aheadGpus'])} of {groups}; next before it "
    return part("Ahead", f"{words}{first['podGroup']} ({first['because']})")


def fix_lines(entry: Json) -> list[str]:
    """What would help, one line each: what to do, when the group then starts, what would be lost."""
    found = []
    for fix in entry["fixes"]:
        cost = f"; {_listed(fix['lose'])} would lose" if fix["lose"] else ""
        sure = fix["least"] == "proved" or fix["kind"] == "combined"
        least = "" if sure else " (a smaller change may do)"
        starts = "" if fix["kind"] == "wait" else f" -> {_starts(fix['starts'])}"
        found.append(f"{describe(fix)}{least}{starts}{cost}")
    return found


def _fixes(entry: Json) -> list[str]:
    found: list[str] = []
    for i, line in enumerate(fix_lines(entry), 1):
        found += part("Fixes" if i == 1 else "", f"{i}. {line}")
    none, late = _lacking(entry)
    if none:
        found += part("Fixes", none)
    if late:
        found += part("", f"{late}; a larger --budget tries more")
    return found


def _lacking(entry: Json) -> tuple[str, str]:
    """A line that says that there are no fixes, and for which kinds the budget did not suffice; "" if there
    is nothing to say."""
    untried = [one["kind"] for one in entry["noFix"] if one["because"].startswith("not tried")]
    names = ", ".join("two kinds together" if kind == "combined" else kind for kind in untried)
    tried = len(entry["noFix"]) > len(untried)
    none = "none that was tried helps" if tried else "none was tried"
    return "" if entry["fixes"] else none, f"not tried within the budget: {names}" if untried else ""


def remedies(entry: Json) -> Object:
    """The changes that would help, for the page: ``fix_lines``, and a note with what these do not say."""
    return {"fixes": fix_lines(entry), "note": "; ".join(filter(None, _lacking(entry)))}


def _starts(text: str) -> str:
    return {"now": "starts now", "when the room is free": "starts when the capacity is free"}.get(
        text, f"starts {text}"
    )


def describe(fix: Json, reader: str = "") -> str:
    """A fix in words; *it* is the explained pod group. For a ``reader`` in one namespace, pods of other
    namespaces are counted, not named.
    """
    return " and ".join(_operation(_for_reader(op, reader) if reader else op) for op in fix["ops"])


def describe_change(question: Json) -> str:
    """The change of a question, in words: *it* is the pod group named before it."""
    return " and ".join(
        f"{op['podGroup']}: {_operation(op)}" if op.get("podGroup") else _operation(op)
        for op in question["ops"]
    )


def _for_reader(op: Json, namespace: str) -> Json:
    """The operation with the names of other namespaces' pods and pod groups replaced by their number."""
    if op["op"] == "move":
        return {**op, "moves": [move for move in op["moves"] if _is_in(move["pod"], namespace)]} | {
            "others": sum(not _is_in(move["pod"], namespace) for move in op["moves"])
        }
    for key, noun in (("pods", "pod"), ("podGroups", "pod group")):
        if isinstance(op.get(key), list):
            own = [name for name in op[key] if _is_in(name, namespace)]
            others = len(op[key]) - len(own)
            return {**op, key: [*own, *([_of_others(others, noun)] if others else [])]}
    return op


def _is_in(name: str, namespace: str) -> bool:
    return name.partition("/")[0] == namespace


def _of_others(count: int, noun: str) -> str:
    return f"{plural(count, noun)} of other namespaces"


def _operation(op: Json) -> str:
    what = op["op"]
    if what == "add-nodes":
        return f"add {plural(op['count'], 'node')} like {op['like']}"
    if what == "set-request":
        return _request(str(op["resource"]), op["value"])
    if what == "set-min-member" and op.get("subGroup"):
        return f"set the minMember of its subgroup {op['subGroup']} to {op['value']}"
    words = _PLAIN.get(what)
    if words is not None:
        return words.format(**{key: _listed(value) for key, value in op.items()})
    if what == "move":
        moves = [f"{move['pod']} to {move['node']}" for move in op["moves"]]
        if op.get("others"):
            moves.append(_of_others(op["others"], "pod"))
        return f"move {_listed(moves)}"
    if what == "set-queue":
        return _of_queue(op)
    if what == "set-topology":
        part = f" of subgroup {op['subGroup']}" if op.get("subGroup") else ""
        level = op.get("level")
        return f"require topology level {level} only{part}" if level else f"require no topology level{part}"
    if what in ("create", "add"):
        verb = "create" if what == "create" else "add"
        return f"{verb} {_listed([_named(item) for item in op.get('objects') or [op['object']]])}"
    return str(what)


def _request(resource: str, value: Any) -> str:
    """A smaller request: whole GPUs by their usual name, everything else by its field."""
    if resource.startswith("gpu-"):
        return f"ask for a {resource} of {value} per pod"
    unit = f"GPU{'s' * (str(value) != '1')}" if resource in ("gpu", GPU) else resource
    return f"ask for {value} {unit} per pod"


def _named(item: Json) -> str:
    """Kind and name of an object."""
    space = item["metadata"].get("namespace")
    return f"{item['kind']} {space + '/' if space else ''}{item['metadata']['name']}"


def _of_queue(op: Json) -> str:
    """A change of a queue, with the unit of an amount and what it was."""
    resource = op.get("resource", "")
    named = {"gpu": "GPU", "cpu": "CPU"}.get(resource, resource)
    what = f"{named} {_FIELDS.get(op['field'], op['field'])}".lstrip()
    amounts = resource if op["field"] in ("limit", "quota") else ""
    was = f" (now {_bound(op['was'], amounts, short=True)})" if "was" in op else ""
    if amounts and op["value"] == UNLIMITED:
        return f"set no {what} for queue {op['queue']}{was}"
    return f"set the {what} of queue {op['queue']} to {_bound(op['value'], amounts)}{was}"


def _bound(value: Any, resource: str, *, short: bool = False) -> str:
    """A value of a queue's field, in words if it is an amount of a resource; ``short``: without its unit."""
    if resource and value == UNLIMITED:
        return "none"
    if not isinstance(value, int | float):
        return str(value)
    said = of_queue(resource, value) if resource else number(value)
    return said.partition(" ")[0] if short else said


def of_queue(resource: str, value: float) -> str:
    """An amount as a queue's field has it: GPUs, thousandths of a CPU, megabytes."""
    if resource == "cpu":
        cpus = value / 1000
        return f"{number(cpus)} CPU{'s' * (cpus != 1)}"
    return f"{number(value)} MB" if resource == "memory" else _gpus(value)


_FIELDS: Final = {"overQuotaWeight": "over-quota weight"}
"""Fields of a queue whose name is not a word."""
_PLAIN: Final = {
    "at": "wait until {now}",
    "cordon": "cordon {nodes}",
    "drain": "drain {nodes}",
    "remove-nodes": "remove {nodes}",
    "disable-action": "switch action {action} off",
    "uncordon": "uncordon {nodes}",
    "untaint": "take taint {key} off {node}",
    "enable-action": "switch action {action} on",
    "stop": "stop {pods}",
    "remove": "remove {podGroups}",
    "set-priority": "give it priority {value}",
    "set-min-member": "set its minMember to {value}",
    "tolerate": "tolerate taint {key}",
    "drop-selector": "drop the node selector on {keys}",
    "ungate": "remove the scheduling gates of its pods",
    "clear-backoff": "clear its scheduling backoff",
    "set-group-queue": "put it into queue {queue}",
    "set-subgroup": "put its wrongly labelled pods into subgroup {subGroup}",
}


def _listed(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    more = f" and {len(value) - 4} more" if len(value) > 4 else ""
    return ", ".join(map(str, value[:4])) + more


def _start(entry: Json) -> str:
    start = entry["start"] or {}
    if start.get("at"):
        return f"{start['at']}: {start['because']}"
    return str(start.get("because") or "no estimate")


def _evicted(state: str, by: Json) -> list[str]:
    pods = by["pods"]
    triggers = f" for {_listed(by['for'])}" if by["for"] else ""
    count = f"{plural(len(pods), 'pod')} by {by['action']}"
    if state == "moved":
        return part("Moved", f"{count}{triggers}")
    found = part("Evicted", f"{count}{triggers} ({by['rule']})")
    found += part("", by["because"])
    stages = (one for one in by["alternatives"] if one["value"])
    bounds = [one for one in stages if "lost" in one["name"] or "stopped" in one["name"]]
    for one in [one for one in bounds if "[steps]" not in one["name"]][:2]:
        found += part("", _least(one, by["action"]))
    return found


def _least(stage: Json, action: str) -> str:
    """The total cost of an action of the plan, and that no other plan costs less. Sums by rank mean nothing
    to a reader."""
    name, _, unit = stage["name"].partition(":")[2].strip().partition(" [")
    # A weighted sum is stated in parts of one, such as 1/3600000.
    parts = unit.removeprefix("1/").removesuffix("]")
    scale, unit = (int(parts), "") if parts.isdigit() else _SCALES.get(unit, (1, ""))
    if "by rank" in name:
        sure = "no permitted plan loses" if stage["proved"] else "no plan was found that loses"
        return f"{sure} fewer GPUs, weighted by the fair order"
    cost = f"{name} by {action} in all: {number(round(stage['value'] / scale, 3))}{unit}"
    if stage["proved"]:
        return f"{cost}; no permitted plan has less"
    return f"{cost}; at least {number(round(stage['bound'] / scale, 3))}{unit} in any plan"


_SCALES: Final = {"GPU-milliseconds]": (3_600_000, " GPU-hours"), "milli-GPUs]": (1_000, "")}
"""By unit of a stage: how many of it make one unit that people use."""


def number(value: float) -> str:
    """A count or an amount, with separators and no needless decimals."""
    return f"{value:,.10g}"


def _gpus(value: float) -> str:
    part = 0 < value < 1
    return f"{number(value)} {'of a GPU' if part else 'GPU' if value == 1 else 'GPUs'}"
