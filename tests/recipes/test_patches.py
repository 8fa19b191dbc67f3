"""Recipes of CONTRIBUTING as worked patches: each one is applied to a copy of the project and tested there.

A patch is everything that a newcomer writes, so its files are those that CONTRIBUTING counts. A patch that
does not apply any more is applied with ``git apply --3way``, mended, and saved with ``git diff --cached
-U1``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGES = "tests/docs/test_lists.py"
"""What the pages must list: reasons, rules, goals, subjects of the checker and their tests."""


def touched(patch: Path) -> list[str]:
    """The files that a patch creates or changes."""
    return re.findall(r"(?m)^\+\+\+ b/(\S+)$", patch.read_text("utf-8"))


def copy_of_project(folder: Path, files: list[str]) -> None:
    """A copy of the project: files that a patch changes are copied, and the others are linked."""
    changed = {file.partition("/")[0] for file in files}
    for path in ROOT.iterdir():
        if path.name.startswith("."):
            continue
        if path.name not in changed:
            (folder / path.name).symlink_to(path)
        elif path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / path.name)


COUNTED = {"static_rule": 5, "stateful_rule": 6, "goal": 5, "action": 9, "controller": 4}
"""The files of each patch, without those that ``make docs`` writes."""


@pytest.mark.parametrize(("name", "count"), COUNTED.items())
def test_a_recipe_takes_the_files_that_are_counted(name: str, count: int, tmp_path: Path) -> None:
    patch = HERE / f"{name}.patch"
    files = touched(patch)
    assert len(files) == count
    copy_of_project(tmp_path, files)
    no_repository = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, env=no_repository, check=True)
    tests = [file for file in files if Path(file).name.startswith("test_")]
    packages = os.pathsep.join(str(tmp_path / folder) for folder in (".", "models", "topology"))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests, PAGES],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_the_page_shows_them() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert not [patch.name for patch in HERE.glob("*.patch") if f"tests/recipes/{patch.name}" not in page]
