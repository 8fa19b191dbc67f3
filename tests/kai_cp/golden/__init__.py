"""How a report looks with the names of a real cluster (EKS nodes, long pod groups), at several widths."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from kai_cp.report.decisions import report

HERE = Path(__file__).parent
WIDTHS = (80, 100, 120, 160, None)


def document() -> dict[str, Any]:
    """The answer for the sample snapshot, under such names."""
    found = json.loads((HERE / "eks.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def path(width: int | None) -> Path:
    """The file of a width; None: as in a pipe."""
    return HERE / f"eks-{width or 'pipe'}.txt"


def terminal(width: int | None) -> str:
    """The report as a terminal of this width shows it."""
    out = io.StringIO()
    console = Console(file=out, width=width or 1_000_000, highlight=False, markup=False)
    console.print(report("prod-eu", document(), stages=width == 160), crop=False)
    return "".join(line.rstrip() + "\n" if width else line + "\n" for line in out.getvalue().splitlines())
