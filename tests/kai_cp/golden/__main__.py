"""Write the files anew; look at them before they are committed."""

from __future__ import annotations

from tests.kai_cp.golden import WIDTHS, path, terminal

for width in WIDTHS:
    path(width).write_text(terminal(width), "utf-8")
