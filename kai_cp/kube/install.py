"""``kai-cp crds``: installs KAI's custom resource definitions where they are missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import resources as files
from typing import Any, Final

import yaml

from kai_cp.json_types import Object
from kai_cp.kube.api import resources
from kai_cp.kube.api.errors import ApiError, KubeError
from kai_cp.kube.api.transport import Transport

ESTABLISHED_SECONDS: Final = 30.0


def definitions() -> Iterator[tuple[str, Object]]:
    """Every definition, as text and parsed."""
    folder = files.files("kai_cp.kube") / "crds"
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml"):
            text = entry.read_text("utf-8")
            yield text, yaml.safe_load(text)


def install(transport: Transport) -> dict[str, bool]:
    """Create the missing definitions and wait until they are served; return for each whether it was created.

    An existing definition, KAI's for example, is never changed. Raises ``KubeError`` if one is not served in
    time.
    """
    done: dict[str, bool] = {}
    for _, definition in definitions():
        name = definition["metadata"]["name"]
        try:
            transport.create(resources.CRDS, "", definition)
            done[name] = True
        except ApiError as error:
            if error.status != 409:
                raise
            done[name] = False
    end = time.monotonic() + ESTABLISHED_SECONDS
    for name in done:
        while not _established(transport.get(resources.CRDS, "", name)):
            if time.monotonic() > end:
                raise KubeError(f"{name} is not established after {ESTABLISHED_SECONDS:g} s")
            time.sleep(0.1)
    return done


def _established(definition: dict[str, Any] | None) -> bool:
    conditions = ((definition or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
