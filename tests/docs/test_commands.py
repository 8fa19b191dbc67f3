"""Every command in README and docs is run, or at least parsed, as it stands there."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.testing import CliRunner

from kai_cp.cli.app import Commands, app, command
from kai_cp.report.reference import commands_page, documents_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEMO = ROOT / "examples" / "demo-cluster.json"
GROUPS = "scheduling.run.ai/v2alpha2"
NOT_RUN = {
    "kubectl": "needs a cluster; those of observe-to-enforce.md are run by tests/e2e",
    "helm": "needs a cluster; tests/deploy and tests/e2e",
    "curl": "needs a scheduler that runs; tests/kai_cp/kube and tests/e2e ask the same paths",
    "docker": "needs a daemon and the network",
    "pip": "needs the network; tests/conventions/test_package.py installs the wheel",
    "git": "changes the clone",
    "make": "its target is looked up",
    "kai-cp scheduler": "needs a cluster; tests/e2e",
    "kai-cp demo-cluster": "builds a control plane; tests/e2e use the same",
    "kai-cp bench --suite kai": "measures for an hour; tests/kai_cp/bench",
    "kai-cp tune --search": "searches for minutes; tests/kai_cp/tune",
    "kai-cp tune --days": "simulates for minutes; tests/kai_cp/tune",
}
"""Commands that are not run here, by their beginning, and why; their options are checked nevertheless."""


def shown(page: Path) -> list[str]:
    """The command lines of the page, without comments beside them. In a block with prompts the lines
    after ``$``; in other blocks all lines.
    """
    found: list[str] = []
    blocks = re.findall(
        r"^```(?:console|sh|bash)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        found += prompted or [line for line in lines if line.strip() and not line.startswith("#")]
    return [re.split(r"\s{2,}#", line)[0].strip().removeprefix(".venv/bin/") for line in found]


def excused(line: str) -> bool:
    """Whether the table says why the command is not run."""
    return any(f"{line} ".startswith(f"{beginning} ") for beginning in NOT_RUN)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the pages name, of the demo cluster with the names of the examples."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "snapshots").mkdir()
    raw = snapshot()
    packed(folder / "snapshot.zip", raw)
    packed(folder / "snapshots" / "monday.zip", raw)
    packed(folder / "snapshots" / "today.zip", raw)
    (folder / "snapshots" / "today.json.gz").write_bytes(gzip.compress(json.dumps(raw).encode()))
    said = {"decisions.json": in_process(folder, f"solve {folder}/snapshot.zip -o json")}
    packed(folder / "cycle.zip", raw, said)
    packed(folder / "big.zip", raw, said)
    (folder / "kai.json").write_text(said["decisions.json"])
    (folder / "ours.json").write_text(said["decisions.json"])
    (folder / "answer.json").write_text(said["decisions.json"])
    (folder / "usage.yaml").write_text("language: {gpu: 0.3}\n")
    for name in ("present.yaml", "candidate.yaml", "tuned.yaml"):
        (folder / name).write_text("solver: {seed: 1}\n" if name == "candidate.yaml" else "{}\n")
    new = {"metadata": {"name": "new", "namespace": "team-a"}, "spec": {"queue": "team-a", "minMember": 1}}
    (folder / "job.yaml").write_text(json.dumps({"apiVersion": GROUPS, "kind": "PodGroup", **new}))
    return folder


def snapshot() -> dict[str, Any]:
    """The demo cluster with node n7, queue team-a and pod group team-a/llm-7b, whose two pods wait."""
    raw: dict[str, Any] = json.loads(DEMO.read_bytes())
    objects = raw["rawObjects"]

    def like(kind: str, old: str, name: str, **meta: str) -> dict[str, Any]:
        found = next(one for one in objects[kind] if one["metadata"]["name"] == old)
        copy: dict[str, Any] = json.loads(json.dumps(found))
        copy["metadata"] |= {"name": name, "uid": name, **meta}
        objects[kind].append(copy)
        return copy

    for node in ("n7", "gpu8"):
        like("nodes", "gpu-7", node)["metadata"]["labels"]["kubernetes.io/hostname"] = node
    like("queues", "language", "team-a")
    for name in ("llm-7b", "llm"):
        group = like("podGroups", "giant", name, namespace="team-a")
        group["spec"] |= {"queue": "team-a", "minMember": 2}
        group["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "name": name}]
        for i in range(2):
            pod = like("pods", "giant-0", f"{name}-{i}", namespace="team-a")
            pod["metadata"]["annotations"] = {"pod-group-name": name}
    return raw


def packed(path: Path, raw: dict[str, Any], more: dict[str, str] | None = None) -> None:
    """The snapshot as KAI packs it, with files beside it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", json.dumps(raw))
        for name, text in (more or {}).items():
            archive.writestr(name, text)


def in_process(folder: Path, line: str) -> str:
    """Run one of our command lines inside this process; returns its output."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, shlex.split(line), prog_name="kai-cp")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.stdout


def in_a_shell(folder: Path, line: str) -> None:
    """A command line with pipes and the like, as a reader types it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_a_page_work(page: Path, desk: Path) -> None:
    """In the order of the page, in one directory."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for line in shown(page):
        if line.startswith("make "):
            assert re.search(rf"^{re.escape(line.split()[1])}:", makefile, re.MULTILINE), line
        if excused(line) or (" jq " in f" {line} " and shutil.which("jq") is None):
            continue
        assert line.startswith(("kai-cp ", "echo ")), f"{page.name}: neither run nor excused: {line}"
        if re.search(r"[|<>*$;&]", line):
            in_a_shell(desk, line)
        else:
            in_process(desk, line.removeprefix("kai-cp "))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_a_page_exist(page: Path) -> None:
    """Command and options of every command line of ours in a block of code exist."""
    context = Context(command, info_name="kai-cp")
    group = command
    blocks = re.findall(
        r"^```(?:sh|console|bash)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for line in (line for block in blocks for line in block.splitlines()):
        found = re.search(r"(?:^|[|&;$] *)kai-cp ([^|&;>]+)", re.split(r"\s+#", line)[0])
        if found is None:
            continue
        words = shlex.split(found[1])
        name = words[0]
        if name.startswith("-"):
            continue
        assert name in Commands.table, line
        options = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        known = known_options(group.load(name), context)  # type: ignore[attr-defined]
        assert options <= known, f"{line}: {options - known}"


def known_options(found: object, context: Context) -> set[str]:
    """All options of a command and of its subcommands."""
    options = {option for p in found.get_params(context) for option in (*p.opts, *p.secondary_opts)}  # type: ignore[attr-defined]
    for below in getattr(found, "commands", {}).values():
        options |= known_options(below, context)
    return options | {"-h", "--help"}


def test_the_page_of_documents_is_made_of_the_code() -> None:
    assert documents_page() == (ROOT / "docs" / "reference-json.md").read_text("utf-8"), "run: make docs"


def test_the_page_of_commands_is_made_of_the_code() -> None:
    assert commands_page() == (ROOT / "docs" / "reference-cli.md").read_text("utf-8"), "run: make docs"
