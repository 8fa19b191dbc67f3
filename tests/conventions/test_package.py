"""The package as users get it: the wheel in an empty environment, without the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo-cluster.json"
BUILD = {"hatchling", "editables", "pathspec", "pluggy", "trove-classifiers", "tomlkit", "packaging"}
"""Packages that only build the package."""
LARGEST = 300_000_000
"""Bytes on disk of everything that `pip install kai-cp` brings, bytecode included."""


def light() -> list[str]:
    """Names of what `pip install kai-cp` brings, without the extras."""
    text = (ROOT / "requirements-light.lock").read_text("utf-8")
    return sorted(set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)) - BUILD)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that sees the wheel and the light dependencies, and nothing else."""
    home = tmp_path_factory.mktemp("stranger")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", home],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    venv.create(home / "venv", with_pip=False)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    for name in light():
        found = distribution(name)
        for top in {
            file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    (wheel,) = home.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True)
    return home / "venv" / "bin" / "python"


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-m", "kai_cp", *map(str, arguments)],
        cwd=python.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_solve_check_and_inspect_work_without_the_repository(python: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [python, "-I", "-c", "import kai_cp, kai_cp_models; print(kai_cp.__file__, kai_cp_models.__file__)"],
        cwd=python.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in where.stdout
    solved = run(python, "solve", DEMO, "--output-dir", tmp_path)
    assert (solved.returncode, solved.stderr) == (0, "")
    assert "4 pods bound" in solved.stdout
    checked = run(python, "check", DEMO, tmp_path / "demo-cluster.json")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "no rule broken" in checked.stdout
    inspected = run(python, "inspect", DEMO, "-o", "json")
    assert json.loads(inspected.stdout)["cluster"]["nodes"] == 8
    assert "rack rack-a" in run(python, "topology", DEMO).stdout
    assert run(python, "--version").stdout.startswith("kai-cp 0.")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("scheduler",), "cluster"),
        (("topology", DEMO, "-o", "svg", "--output", "x.svg"), "bench"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    python: Path, command: tuple[object, ...], extra: str
) -> None:
    done = run(python, *command)
    assert done.returncode == 3
    assert f"pip install 'kai-cp[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_light_install_is_light() -> None:
    """Files that pip wrote for the light dependencies, bytecode included."""
    size = 0
    for name in light():
        try:
            files = distribution(name).files or ()
        except PackageNotFoundError:
            pytest.fail(f"{name} of requirements-light.lock is not installed: make lock, then make test")
        size += sum(p.stat().st_size for file in files if (p := Path(str(file.locate()))).is_file())
    assert size < LARGEST, f"{size / 1e6:.0f} MB"
