"""The rules of the chart's roles, by account, mode and scope, from the declared access of the processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, get_args

import yaml

from kai_cp.kube.api.access import ACCESS, Grant, Verb

MODES: Final = ("observe", "advise", "enforce")
VERBS: Final = get_args(Verb)
READING: Final = ("get", "list", "watch")
HEADER: Final = "# Exactly what kai_cp/kube/api/access.py declares, written by deploy/make_chart.py.\n"
Rule = dict[str, Any]


def needed(grant: Grant, mode: str) -> bool:
    """Whether the scheduler needs the grant in a mode.

    *observe* reads only and takes no lease; *advise* also writes statuses and events; *enforce* does all.
    """
    if mode == "enforce":
        return True
    reads = grant.verb in READING and grant.resource != "leases"
    tells = grant.resource in ("events", "leases") or grant.resource.endswith("/status")
    return reads or (mode == "advise" and tells)


def rules(grants: Iterable[Grant]) -> list[Rule]:
    """Rules with as few entries as the same verbs, and the same names of objects, allow."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    names: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for grant in grants:
        names[grant.group, grant.resource, grant.verb].add(grant.name)
    for (group, resource, verb), allowed in names.items():
        verbs[group, resource, tuple(sorted(allowed))].add(verb)
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, named), granted in verbs.items():
        merged[group, tuple(sorted(granted, key=VERBS.index)), named].append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(kinds),
            **({"resourceNames": list(named)} if any(named) else {}),
            "verbs": list(granted),
        }
        for (group, granted, named), kinds in sorted(merged.items())
    ]


def by_scope(grants: Iterable[Grant]) -> dict[str, list[Rule]]:
    """Rules by scope: ``cluster``, or the namespace meant by the grant."""
    found: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        found[grant.scope or "cluster"].append(grant)
    return {scope: rules(found[scope]) for scope in sorted(found)}


def table() -> dict[str, dict[str, dict[str, list[Rule]]]]:
    """Rules by account, mode and scope; ``any``: in every mode."""
    made: dict[str, dict[str, dict[str, list[Rule]]]] = {}
    for process, grants in ACCESS.items():
        if process in ("scheduler", "node-pools"):
            made[process] = {mode: by_scope(g for g in grants if needed(g, mode)) for mode in MODES}
        else:
            made[process] = {"any": by_scope(grants)}
    return made


def rights() -> str:
    """``files/rights.yaml``."""
    return HEADER + yaml.safe_dump(table(), sort_keys=True, width=110)
