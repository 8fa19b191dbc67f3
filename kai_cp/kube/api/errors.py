"""Errors of the Kubernetes client side: the only ones that leave ``kai_cp.kube``."""

from __future__ import annotations


class KubeError(Exception):
    """Something went wrong between this process and the API server."""

    unknown: bool = False
    """Whether the server may nevertheless have carried out the request."""


class NotReachable(KubeError):
    """No answer: connection refused, reset, or timed out."""

    unknown = True


class Unauthorized(KubeError):
    """The API server does not accept our credentials (401); the process must end (11.2)."""


class LeaseLost(KubeError):
    """A write was refused here because this process no longer holds its lease."""


class NotGranted(KubeError):
    """A call outside the declared access of this process: a defect, found before the server refuses it."""


class Gone(KubeError):
    """A list or watch cannot go on from its resource version (410); a new list is needed."""


class ApiError(KubeError):
    """The API server refused; ``status`` is the HTTP status, ``reason`` Kubernetes' word for it."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        *,
        overtaken: bool = False,
        over_budget: bool = False,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.unknown = status == 408 or status >= 500
        self.overtaken = overtaken
        """Another program wrote at the same time, and the request does not depend on that: a patch that names
        no version.
        """
        self.over_budget = over_budget
        """A PodDisruptionBudget does not allow the eviction now."""

    @property
    def not_found(self) -> bool:
        """Whether the server says that there is no such object. A path that it does not serve is a 404 too,
        as is a page of a proxy in plain text.
        """
        return self.status == 404 and self.reason == "NotFound"

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without a change on our side."""
        busy = self.status in (408, 429, 500, 502, 503, 504)
        return self.overtaken or (busy and not self.over_budget)
