"""Write ``deploy/base/rbac.yaml`` from the declared access: ``python deploy/make_rbac.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from kai_cp.kube.access import ACCESS, Grant, Process, Verb

HEADER: Final = (
    "# Exactly what kai_cp/kube/access.py declares, written by deploy/make_rbac.py;\n"
    "# tests/kai_cp/kube/test_access.py compares both ways.\n"
)
NAMESPACES: Final = {"system": "kai-scheduler", "reservation": "kai-resource-reservation"}
ACCOUNTS: Final[dict[Process, tuple[str, str]]] = {
    "scheduler": ("kai-cp-scheduler", "kai-scheduler"),
    "binder": ("kai-cp-binder", "kai-scheduler"),
    "gpu-reservation": ("kai-resource-reservation", "kai-resource-reservation"),
}
PEOPLE: Final[dict[Process, tuple[str, str]]] = {
    "reader": (
        "kai-cp-reader",
        "For people and pipelines that only look: bind it to who runs the command line.",
    ),
    "admin": ("kai-cp-crd-installer", "For `kai-cp crds --apply`: bind it to whoever installs."),
}
VERBS: Final = get_args(Verb)
API: Final = "rbac.authorization.k8s.io"


def rules(grants: Iterable[Grant]) -> str:
    """Rules with as few entries as the same verbs allow."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for grant in grants:
        verbs[grant.group, grant.resource].add(grant.verb)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), allowed in verbs.items():
        merged[group, tuple(sorted(allowed, key=VERBS.index))].append(resource)
    return "rules:\n" + "".join(
        f'  - apiGroups: ["{group}"]\n'
        f"    resources: [{', '.join(sorted(names))}]\n"
        f"    verbs: [{', '.join(allowed)}]\n"
        for (group, allowed), names in sorted(merged.items())
    )


def head(kind: str, name: str, namespace: str, api: str = f"{API}/v1") -> str:
    """A document's first lines."""
    where = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\n{where}"


def binding(kind: str, name: str, namespace: str, home: str) -> str:
    """A binding of a role to the account of the same name in ``home``."""
    return (
        head(f"{kind}Binding", name, namespace)
        + f"roleRef:\n  apiGroup: {API}\n  kind: {kind}\n  name: {name}\n"
        + f"subjects:\n  - kind: ServiceAccount\n    name: {name}\n    namespace: {home}\n"
    )


def documents() -> Iterable[str]:
    """Every document of the manifest."""
    for process, (name, home) in ACCOUNTS.items():
        yield head("ServiceAccount", name, home, "v1")
        for scope in sorted({grant.scope for grant in ACCESS[process]}):
            kind, namespace = ("Role", NAMESPACES[scope]) if scope else ("ClusterRole", "")
            grants = [grant for grant in ACCESS[process] if grant.scope == scope]
            yield head(kind, name, namespace) + rules(grants)
            yield binding(kind, name, namespace, home)
    for process, (name, purpose) in PEOPLE.items():
        yield f"# {purpose}\n" + head("ClusterRole", name, "") + rules(ACCESS[process])


if __name__ == "__main__":
    target = Path(__file__).parent / "base/rbac.yaml"
    target.write_text(HEADER + "---\n" + "---\n".join(documents()))
