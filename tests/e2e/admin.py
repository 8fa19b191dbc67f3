"""A transport without declared access, for tests that play the rest of the cluster."""

from __future__ import annotations

from kubernetes.client import Configuration

from kai_cp.kube.api.transport import Transport


class AdminTransport(Transport):
    """A transport that may ask for anything."""

    def __init__(self, settings: Configuration) -> None:
        super().__init__(settings, "admin", access=lambda *_: True)
