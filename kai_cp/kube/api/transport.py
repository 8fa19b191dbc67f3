"""Raw JSON over the official client's transport: its TLS, proxies and credentials, none of its decoding.

The client's own decoding has three faults: it costs 0.39 ms a pod and halves the binding rate; a binding call
raises after it has bound; and an answer that is not read costs a new TLS connection. So answers are read to
their end as bytes here and parsed by orjson, and the connection goes back to the pool.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode

import orjson
import urllib3.exceptions
from kubernetes import config as kube_config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from yaml import YAMLError

from kai_cp.errors import Unavailable
from kai_cp.json_types import Object
from kai_cp.kube.api.access import Process, Verb, permits
from kai_cp.kube.api.errors import ApiError, Gone, KubeError, NotGranted, NotReachable, Unauthorized
from kai_cp.kube.api.resources import Resource, is_name
from kai_cp.kube.api.retry import Backoff, retrying
from kai_cp.reader import document, salvage

LOG = logging.getLogger(__name__)

_TOLD = (ConfigException, OSError, ValueError, YAMLError)
"""The client's exceptions for a kubeconfig that it cannot use, where the text says why."""
_UNTOLD = (TypeError, AttributeError, LookupError, RecursionError)
"""The client's exceptions for a file that is not a kubeconfig."""

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 15.0
WATCH_SECONDS: Final = 300
"""The server ends a watch after this time, and the watch is resumed."""
SILENCE_SECONDS: Final = WATCH_SECONDS + 30.0
"""A watch that the server has not ended by then is taken for dead; TCP keep-alive finds lost peers sooner."""
PAGE: Final = 1000
LONGEST_MESSAGE: Final = 2_000
"""Characters of a refusal that are kept: it quotes what a tenant wrote, which may be megabytes."""
MOST_PAGE_BYTES: Final = 16 * 1024**2
"""A thousand pods of a training job have 10 MiB."""
METADATA_ONLY: Final = "application/json;as={};g=meta.k8s.io;v=v1, application/json"
METHODS: Final[Mapping[Verb, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_IN_EVENT: Final = 1
"""Nesting levels around an object."""
BUDGET_CAUSE: Final = "DisruptionBudget"
"""Tells the refusal of an eviction from that of a busy server; both are 429."""
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
OF_ONE: Final = frozenset({"get", "update", "patch", "delete"})
"""Verbs of requests that name an object."""

cached_permits = lru_cache(maxsize=4096)(permits)


def configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """Client configuration from a kubeconfig file, or from the pod that this process runs in.

    Raises ``Unavailable``, which says what to do, if neither can be used.
    """
    result = Configuration()
    try:
        if kubeconfig or "KUBERNETES_SERVICE_HOST" not in os.environ:
            kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig or None, context=context or None, client_configuration=result
            )
        else:
            kube_config.load_incluster_config(client_configuration=result)  # type: ignore[no-untyped-call]
    except (*_TOLD, *_UNTOLD) as problem:
        which = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        reason = (
            str(problem).split("\n", 1)[0].rstrip(". ")
            if isinstance(problem, _TOLD)
            else "it is not a kubeconfig"
        )
        if not any(os.path.exists(os.path.expanduser(path)) for path in which.split(os.pathsep)):
            reason = "there is no such file"
        raise Unavailable(
            f"no cluster to talk to: {which}: {reason}. Name a kubeconfig with --kubeconfig or KUBECONFIG, "
            "or run in a pod with a service account."
        ) from None
    return result


class Transport:
    """Requests of one process to the API server.

    ``process`` selects the declared access; ``fence`` is asked before every write and must raise
    :class:`LeaseLost` once this process may not write. ``qps`` of 0 leaves the rate to the server.
    """

    def __init__(
        self,
        settings: Configuration,
        process: Process,
        *,
        user_agent: str = "kai-cp",
        backoff: Backoff | None = None,
        qps: float = 0.0,
        burst: int = 300,
        read_seconds: float = READ_SECONDS,
        fence: Callable[[], None] | None = None,
        on_unauthorized: Callable[[], None] | None = None,
        access: Callable[[Process, Verb, Resource, str, str], bool] = cached_permits,
    ) -> None:
        settings.retries = False
        settings.connection_pool_maxsize = 64
        settings.keep_alive = True
        self._settings = settings
        self._client = ApiClient(settings)
        self._process = process
        self._access = access
        self._user_agent = f"{user_agent}/{process}"
        self._backoff = backoff or Backoff()
        self._limit = RateLimit(qps, burst) if qps > 0 else None
        self._timeout = (min(CONNECT_SECONDS, read_seconds), read_seconds)
        self._fence = fence
        self._on_unauthorized = on_unauthorized
        self._requests: dict[tuple[str, str], int] = {}
        self._counting = threading.Lock()

    def set_fence(self, fence: Callable[[], None]) -> None:
        """Ask ``fence`` before every write from now on."""
        self._fence = fence

    def counted(self) -> dict[tuple[str, str], int]:
        """Requests sent so far, by verb and resource."""
        with self._counting:
            return dict(self._requests)

    def may(self, verb: Verb, resource: Resource) -> bool:
        """Whether this process declares such requests for a whole kind."""
        return self._access(self._process, verb, resource, "", "")

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None when there is none."""
        return self._answer("get", resource, namespace, name, absent=True)

    def list_pages(
        self, resource: Resource, *, selector: str = "", fields: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """Every object (of the selector) and the resource version to watch from."""
        items: list[Object] = []
        version = ""
        for page, at in self.pages(resource, selector=selector, fields=fields, metadata_only=metadata_only):
            items += page
            version = at
        return items, version

    def pages(
        self, resource: Resource, *, selector: str = "", fields: str = "", metadata_only: bool = False
    ) -> Iterator[tuple[Sequence[Object], str]]:
        """Objects (of the selector), page by page, each with the resource version to watch from.

        A page takes little more than its text, and has fewer objects where these are large: of one tenant's,
        a thousand take 3 GB. Its objects are parsed one by one, as they take up to 20 times their text.
        Raises ``NotReachable`` if something else answers.
        """
        token, limit = "", PAGE
        while True:
            query: dict[str, str] = {"limit": str(limit)}
            query |= {"continue": token} if token else {}
            query |= {"labelSelector": selector} if selector else {}
            query |= {"fieldSelector": fields} if fields else {}
            accept = METADATA_ONLY.format("PartialObjectMetadataList") if metadata_only else ""
            text = self._page(resource, query, accept, MOST_PAGE_BYTES if limit > 1 else None)
            if limit > 1 and len(text) > MOST_PAGE_BYTES:
                limit = max(1, limit // 8)
                continue
            try:
                items, meta = document.page(text)
            except orjson.JSONDecodeError as error:
                raise NotReachable(f"list {resource.path()}: something else answers: {error}") from error
            if items:
                limit = min(PAGE, max(1, MOST_PAGE_BYTES // 2 * len(items) // len(text)))
            del text  # The items refer to it, and go one by one.
            yield items, meta.get("resourceVersion") or ""
            token = meta.get("continue") or ""
            if not token:
                return

    def _page(self, resource: Resource, query: Mapping[str, str], accept: str, most: int | None) -> bytes:
        """The text of a page of a list; of one with more than ``most`` bytes so much that this shows."""
        path = resource.path()

        def once() -> bytes:
            response = self._send(
                "list",
                resource,
                "",
                "",
                "",
                path=path,
                query=query,
                body=None,
                accept=accept,
                timeout=self._timeout,
            )
            return self._read(response, most)

        return retrying(once, self._backoff, what=f"list {path}")

    def watch(
        self,
        resource: Resource,
        version: str,
        *,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        seconds: int = WATCH_SECONDS,
        opened: Callable[[Callable[[], None]], None] | None = None,
    ) -> Iterator[tuple[str, Object]]:
        """Events (type, object) after ``version`` until the server ends the watch.

        ``opened`` is called once with a function that closes the connection from another thread. Raises
        ``NotReachable`` if the connection breaks.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        query |= {"labelSelector": selector} if selector else {}
        query |= {"fieldSelector": fields} if fields else {}
        accept = METADATA_ONLY.format("PartialObjectMetadata") if metadata_only else ""
        response = self._send(
            "watch",
            resource,
            "",
            "",
            "",
            path=resource.path(),
            query=query,
            body=None,
            accept=accept,
            timeout=self._timeout,
        )
        # The server answers at once and may then be silent, so the long timeout applies only from here on.
        _be_patient(response, SILENCE_SECONDS)
        if opened is not None:
            opened(lambda: _hang_up(response))
        rest = b""
        try:
            for chunk in response.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        event = salvage.loads(line, _IN_EVENT)
                        yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            raise NotReachable(f"watch of {resource.plural} broke off: {error}") from error
        finally:
            response.close()

    def create(
        self, resource: Resource, namespace: str, body: Object, *, name: str = "", subresource: str = ""
    ) -> Object:
        """The created object. 409 is raised as :class:`ApiError`; its meaning depends on the caller."""
        if "kind" not in body:
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        answer = self._answer("create", resource, namespace, name, subresource, body=body)
        assert answer is not None
        return answer

    def update(
        self, resource: Resource, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> Object:
        """The replaced object; 409 when it changed meanwhile."""
        answer = self._answer("update", resource, namespace, name, subresource, body=body)
        assert answer is not None
        return answer

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Object,
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> Object | None:
        """The patched object, or None when it is gone. A merge patch unless ``strategic``.

        If ``body`` has the object's uid, another one that has its name now is not patched: it is gone.
        """
        kind = "strategic-merge-patch" if strategic else "merge-patch"
        try:
            return self._answer(
                "patch",
                resource,
                namespace,
                name,
                subresource,
                body=body,
                absent=True,
                content=f"application/{kind}+json",
            )
        except ApiError as error:
            if error.status == 422 and "metadata.uid: " in error.message:
                return None
            raise

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace: int | None = None
    ) -> Object | None:
        """What the server said (the object while it terminates), or None when it is gone already.

        With ``uid``, another object of the same name is not deleted; that is a 409.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return self._answer("delete", resource, namespace, name, body=options, absent=True)

    def raw(self, path: str) -> Any:
        """A discovery document (every authenticated user may read those), or None when there is none."""

        def once() -> Any:
            response = self._exchange("GET", path, {}, None, "", timeout=self._timeout)
            return orjson.loads(self._read(response))

        try:
            return retrying(once, self._backoff, what=f"GET {path}")
        except ApiError as error:
            if error.status in (403, 404):
                return None
            raise

    def close(self) -> None:
        """Close every connection."""
        self._client.rest_client.pool_manager.clear()

    def _answer(
        self,
        verb: Verb,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        *,
        body: Object | None = None,
        absent: bool = False,
        content: str = "",
    ) -> Object | None:
        path = resource.path(namespace, name, subresource)

        def once() -> Object:
            if verb in OF_ONE and not is_name(name):
                raise ApiError(404, "NotFound", f"{name!r} is the name of no object")
            response = self._send(
                verb,
                resource,
                subresource,
                namespace,
                content,
                path=path,
                query={},
                body=body,
                accept="",
                timeout=self._timeout,
            )
            try:
                answer: Object = salvage.loads(self._read(response), 0)
            except orjson.JSONDecodeError as error:
                raise NotReachable(f"{verb} {path}: something else answers: {error}") from error
            return answer

        try:
            return retrying(once, self._backoff, what=f"{verb} {path}")
        except ApiError as error:
            if absent and error.not_found:
                return None
            raise

    def _send(
        self,
        verb: Verb,
        resource: Resource,
        subresource: str,
        namespace: str,
        content: str,
        *,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        accept: str,
        timeout: tuple[float, float],
    ) -> Any:
        if not self._access(self._process, verb, resource, subresource, namespace):
            raise NotGranted(f"{self._process} may not {verb} {path}: not in kai_cp/kube/api/access.py")
        if verb in WRITES and self._fence is not None:
            self._fence()
        if self._limit is not None:
            self._limit.wait()
        what = f"{resource.plural}/{subresource}" if subresource else resource.plural
        with self._counting:
            self._requests[verb, what] = self._requests.get((verb, what), 0) + 1
        url = f"{path}?{urlencode(query)}" if query else path
        return self._exchange(METHODS[verb], url, {"Content-Type": content}, body, accept, timeout=timeout)

    def _exchange(
        self,
        method: str,
        path: str,
        extra: Mapping[str, str],
        body: Object | None,
        accept: str,
        *,
        timeout: tuple[float, float],
    ) -> Any:
        headers = {"Accept": accept or "application/json", "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = extra.get("Content-Type") or "application/json"
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        try:
            answer = self._client.call_api(
                method, self._settings.host + path, headers, body=body, _request_timeout=timeout
            )
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise NotReachable(f"{method} {path}: {error}") from error
        response = answer.response
        if response.status >= 400:
            raise self._refusal(response, method, path, body)
        return response

    def _refusal(self, response: Any, method: str, path: str, body: Object | None) -> KubeError:
        try:
            said = orjson.loads(self._read(response))
        except (orjson.JSONDecodeError, NotReachable):
            said = {}
        if not isinstance(said, dict):
            said = {}
        # The server itself says in plain text that it does not serve a path.
        plain = response.headers.get("Content-Type", "").startswith("text/plain")
        if response.status == 404 and said.get("kind") != "Status" and not plain:
            return NotReachable(f"{method} {path}: something else answers: 404")
        message = str(said.get("message") or response.reason or "")
        if response.status == 401:
            if self._on_unauthorized is not None:
                self._on_unauthorized()
            return Unauthorized(f"{method} {path}: {message}")
        if response.status == 410 and method == "GET":
            return Gone(message)
        wait = response.headers.get("Retry-After", "")
        seconds = float(wait) if wait.isdigit() else None
        reason = str(said.get("reason") or "")
        bound = "recondition" in message or "resourceVersion" in ((body or {}).get("metadata") or {})
        overtaken = response.status == 409 and method == "PATCH" and not bound
        details = said.get("details")
        causes = details.get("causes") or () if isinstance(details, dict) else ()
        budget = any(cause.get("reason") == BUDGET_CAUSE for cause in causes)
        shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
        return ApiError(response.status, reason, shown, seconds, overtaken=overtaken, over_budget=budget)

    @staticmethod
    def _read(response: Any, most: int | None = None) -> bytes:
        """The body of an answer; of one with more than ``most`` bytes so much that this shows."""
        try:
            data: bytes = response.data if most is None else response.read(most + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NotReachable(f"answer broke off: {error}") from error
        if most is not None and len(data) > most:
            response.close()
        response.release_conn()
        return data


class RateLimit:
    """A token bucket: ``qps`` requests a second, ``burst`` at once."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._qps = qps
        self._burst = float(max(1, burst))
        self._tokens = self._burst
        self._monotonic = monotonic
        self._sleep = sleep
        self._last = monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Take one token; wait for one when there is none."""
        with self._lock:
            now = self._monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._last) * self._qps)
            self._last = now
            self._tokens -= 1.0
            short = -self._tokens / self._qps
        if short > 0:
            self._sleep(short)


def _socket(response: Any) -> Any:
    return getattr(response.connection, "sock", None)


def _be_patient(response: Any, seconds: float) -> None:
    """Longest silence within a stream."""
    sock = _socket(response)
    if sock is not None:
        sock.settimeout(seconds)


def _hang_up(response: Any) -> None:
    """End a stream that another thread reads; closing it would wait for that thread."""
    sock = _socket(response)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
