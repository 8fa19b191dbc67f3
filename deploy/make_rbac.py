"""Write every ``deploy/*/rbac.yaml`` from the declared access: ``python deploy/make_rbac.py``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from chart_rights import rules

from kai_cp.kube.access import ACCESS, ControllerName, Grant, Process

HEADER: Final = (
    "# Exactly what kai_cp/kube/access.py declares, written by deploy/make_rbac.py;\n"
    "# tests/kai_cp/kube/test_access.py compares both ways.\n"
)
NAMESPACES: Final = {
    "system": "kai-scheduler",
    "reservation": "kai-resource-reservation",
    "scaling": "kai-scale-adjust",
}
ACCOUNTS: Final[dict[Process, tuple[str, str]]] = {
    "scheduler": ("kai-cp-scheduler", "kai-scheduler"),
    "binder": ("kai-cp-binder", "kai-scheduler"),
    "gpu-reservation": ("kai-resource-reservation", "kai-resource-reservation"),
    "admission": ("kai-cp-admission", "kai-scheduler"),
    "controllers": ("kai-cp-controllers", "kai-scheduler"),
}
GUESTS: Final[dict[Process, tuple[ControllerName, ...]]] = {"controllers": get_args(ControllerName)}
"""Parts that an account hosts, each with a role of its own: leave out those that are switched off."""
FOLDERS: Final[dict[Process, str]] = {"admission": "admission", "controllers": "controllers"}
"""Where an account's rights are written, if not to ``base``: parts that are installed by themselves."""
PEOPLE: Final[dict[Process, tuple[str, str]]] = {
    "reader": (
        "kai-cp-reader",
        "For people and pipelines that only look: bind it to who runs the command line.",
    ),
    "admin": ("kai-cp-crd-installer", "For `kai-cp crds --apply`: bind it to whoever installs."),
}
API: Final = "rbac.authorization.k8s.io"


def written(grants: Iterable[Grant]) -> str:
    """Rules as YAML."""
    lines = ["rules:\n"]
    for rule in rules(grants):
        lines.append(f'  - apiGroups: ["{rule["apiGroups"][0]}"]\n')
        for key in ("resources", "resourceNames", "verbs"):
            if key in rule:
                lines.append(f"    {key}: [{', '.join(rule[key])}]\n")
    return "".join(lines)


def head(kind: str, name: str, namespace: str, api: str = f"{API}/v1") -> str:
    """A document's first lines."""
    where = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\n{where}"


def binding(kind: str, name: str, namespace: str, home: str, account: str = "") -> str:
    """A binding of a role to an account in ``home``, by default that of the same name."""
    return (
        head(f"{kind}Binding", name, namespace)
        + f"roleRef:\n  apiGroup: {API}\n  kind: {kind}\n  name: {name}\n"
        + f"subjects:\n  - kind: ServiceAccount\n    name: {account or name}\n    namespace: {home}\n"
    )


def documents(folder: str) -> Iterable[str]:
    """Every document of a folder's manifest."""
    for process, (name, home) in ACCOUNTS.items():
        if FOLDERS.get(process, "base") != folder:
            continue
        yield head("ServiceAccount", name, home, "v1")
        for scope in sorted({grant.scope for grant in ACCESS[process]}):
            kind, namespace = ("Role", NAMESPACES[scope]) if scope else ("ClusterRole", "")
            grants = [grant for grant in ACCESS[process] if grant.scope == scope]
            yield head(kind, name, namespace) + written(grants)
            yield binding(kind, name, namespace, home)
        for guest in GUESTS.get(process, ()):
            role = f"kai-cp-{guest}"
            for scope in sorted({grant.scope for grant in ACCESS[guest]}):
                kind, namespace = ("Role", NAMESPACES[scope]) if scope else ("ClusterRole", "")
                grants = [grant for grant in ACCESS[guest] if grant.scope == scope]
                yield head(kind, role, namespace) + written(grants)
                yield binding(kind, role, namespace, home, account=name)
    for process, (name, purpose) in PEOPLE.items() if folder == "base" else ():
        yield f"# {purpose}\n" + head("ClusterRole", name, "") + written(ACCESS[process])


if __name__ == "__main__":
    for folder in ("base", *sorted(set(FOLDERS.values()))):
        target = Path(__file__).parent / folder / "rbac.yaml"
        target.write_text(HEADER + "---\n" + "---\n".join(documents(folder)))
