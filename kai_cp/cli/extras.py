"""Optional parts: what `pip install kai-cp` leaves out, and the sentence for users who need them."""

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
    """What to do about a package that is not there; None: it is not an optional one."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(package)
    if extra is None:
        return None
    return f"this needs {package}, which is not installed: pip install 'kai-cp[{extra}]'"
