"""Optional packages: which ones `pip install kai-cp` leaves out, and the sentence for users who need them."""

from __future__ import annotations

from typing import Final

_EXTRA_OF: Final = {
    "kubernetes": "cluster",
    "urllib3": "cluster",
    "prometheus_client": "cluster",
    "pynvml": "cluster",
    "cryptography": "cluster",
    "jq": "cluster",
    "matplotlib": "bench",
    "optuna": "tune",
    "sqlalchemy": "tune",
    "psycopg": "postgresql",
}
"""The extra of pyproject.toml that brings a package."""


def sentence(error: ModuleNotFoundError) -> str | None:
    """The sentence that says how to get a missing package; None: the package is not optional."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(package)
    if extra is None:
        return None
    return f"this needs {package}, which is not installed: pip install 'kai-cp[{extra}]'"
