"""``python -m kai_cp.kube.demo``."""

from __future__ import annotations

import sys

from kai_cp.kube.cli import app

if __name__ == "__main__":
    app(["demo-cluster", *sys.argv[1:]])
