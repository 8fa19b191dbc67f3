"""Every command that README and docs show is run, or at least understood, as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer import Context

from kai_cp.cli.app import Commands, command
from kai_cp.report.reference import commands_page, documents_page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEMO = ROOT / "examples" / "demo-cluster.json"
NOT_RUN = (
    "kubectl",
    "curl",
    "helm",
    "docker",
    "make",
    "pip",
    "git",
    "kai-cp scheduler",
    "kai-cp demo-cluster",
)
"""They need a cluster, the network or an hour; targets of make are looked up, options of ours are parsed."""


def shown(page: Path) -> list[str]:
    """The lines that stand behind ``$`` in the page, without what is said beside them."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [re.split(r"\s{2,}#", line[2:])[0].strip() for line in lines]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "snapshots").mkdir()
    for path in (folder / "snapshot.zip", folder / "snapshots" / "monday.zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", DEMO.read_bytes())
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_of_a_page_work(page: Path, desk: Path) -> None:
    """In the order of the page, in one directory, as a reader would type them."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in shown(page):
        if line.startswith("make "):
            target = line.split()[1]
            assert re.search(
                rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
            ), line
        if line.startswith(NOT_RUN) or " jq " in f" {line} ":
            continue
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=desk,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_options_in_a_page_exist(page: Path) -> None:
    """Every command line of ours in a block of code is understood: command and options."""
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
    """All options of a command and of those below it."""
    options = {option for p in found.get_params(context) for option in (*p.opts, *p.secondary_opts)}  # type: ignore[attr-defined]
    for below in getattr(found, "commands", {}).values():
        options |= known_options(below, context)
    return options | {"-h", "--help"}


def test_the_page_of_documents_is_made_of_the_code() -> None:
    assert documents_page() == (ROOT / "docs" / "reference-json.md").read_text("utf-8"), "run: make docs"


def test_the_page_of_commands_is_made_of_the_code() -> None:
    assert commands_page() == (ROOT / "docs" / "reference-cli.md").read_text("utf-8"), "run: make docs"
