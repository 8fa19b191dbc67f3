"""An API server in this process: objects by path, versions, watches, and faults on demand."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
from kubernetes.client import Configuration

from kai_cp.kube.api import resources
from kai_cp.kube.api.access import Process
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.retry import Backoff
from kai_cp.kube.api.transport import Transport

Object = dict[str, Any]
PLURALS = {entry.plural for entry in vars(resources).values() if isinstance(entry, Resource)}
QUICK = Backoff(attempts=4, first=0.01, longest=0.05, patience=2.0)


class StubServer:
    """``faults``: called before every request; a (status, headers) is the answer at once.

    ``lost``: called after every request; with a true answer the client gets none.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        self.log: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: Callable[[str, str], tuple[int, dict[str, str]] | None] = lambda _m, _p: None
        self.lost: Callable[[str, str], bool] = lambda _m, _p: False
        self.expired_before = 0
        self.bookmarks = False
        self.allowed = 0
        """Evictions that the one PodDisruptionBudget of all pods still allows."""
        self.absent: set[str] = set()
        self._numbers = itertools.count(1)
        self._version = 0
        self._changed = threading.Condition()
        self._closing = False
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def handle_any(self) -> None:
                stub.serve(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def transport(self, process: Process = "scheduler", **options: Any) -> Transport:
        settings = Configuration(host=self.url)
        options.setdefault("backoff", QUICK)
        return Transport(settings, process, **options)

    # --- playing the cluster ---------------------------------------------------------------------

    def put(self, resource: Resource, item: Object) -> Object:
        """Create or replace an object, as another program would."""
        meta = item["metadata"]
        return self.store(resource.path(meta.get("namespace", ""), meta["name"]), item)

    def hold(self, items: Iterable[tuple[Resource, Object]]) -> None:
        """Objects that exist before any watch starts; they become the server's own."""
        for resource, item in items:
            meta = item["metadata"]
            self._version += 1
            meta["resourceVersion"] = str(self._version)
            self.objects[resource.path(meta.get("namespace", ""), meta["name"])] = item

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        with self._changed:
            self._drop(resource.path(namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self.objects.get(resource.path(namespace, name))

    def requests(self, method: str, part: str = "") -> list[Any]:
        """Bodies of the requests of a method whose path contains ``part``."""
        return [body for m, path, body in self.log if m == method and part in path]

    def store(self, path: str, item: Object) -> Object:
        with self._changed:
            old = self.objects.get(path)
            item = copy.deepcopy(item)
            self._version += 1
            meta = item["metadata"]
            meta.setdefault("uid", f"uid-{next(self._numbers)}")
            meta["resourceVersion"] = str(self._version)
            self.objects[path] = item
            self._record("MODIFIED" if old else "ADDED", path, item)
            return item

    def _drop(self, path: str) -> Object:
        item = self.objects.pop(path)
        self._version += 1
        gone = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        self._record("DELETED", path, gone)
        return item

    def _record(self, kind: str, path: str, item: Object) -> None:
        self.history.append((self._version, kind, path, item))
        self._changed.notify_all()

    # --- answering -------------------------------------------------------------------------------

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(handler.headers.get("Content-Length") or 0)
        body = orjson.loads(handler.rfile.read(length)) if length else None
        method, path = handler.command, url.path
        self.log.append((method, handler.path, body))
        self.headers.append(dict(handler.headers.items()))
        fault = self.faults(method, handler.path)
        if fault is not None:
            reason = "NotFound" if fault[0] == 404 else ""
            body = {"kind": "Status", "message": "injected", "reason": reason}
            self._answer(handler, fault[0], body, fault[1])
        elif query.get("watch"):
            self._watch(handler, path, int(query.get("resourceVersion") or 0), query)
        else:
            status, answer = self._do(method, path, query, body, handler.headers.get("Content-Type") or "")
            if self.lost(method, handler.path):
                handler.close_connection = True
            else:
                self._answer(handler, status, answer, {})

    def _do(
        self, method: str, path: str, query: dict[str, str], body: Any, content: str
    ) -> tuple[int, Object]:
        if any(path.endswith(name) for name in self.absent):
            return 404, status("NotFound")
        parent, _, last = path.rpartition("/")
        with self._changed:
            if method == "POST" and last == "binding":
                return self._bind(parent, body)
            if method == "POST" and last == "eviction":
                return self._evict(parent, body)
            if method == "POST":
                name = f"{path}/{body['metadata']['name']}"
                if name in self.objects:
                    return 409, status("AlreadyExists")
                namespace = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else None
                if namespace:
                    body["metadata"].setdefault("namespace", namespace)
                return 201, self.store(name, body)
            target = parent if last == "status" else path
            found = self.objects.get(target)
            if method == "GET":
                return (200, found) if found is not None else self._list(path, query)
            if found is None:
                return 404, status("NotFound")
            if method == "DELETE":
                return self._delete(target, found, body or {})
            if method == "PUT":
                if body["metadata"].get("resourceVersion") not in (
                    None,
                    found["metadata"]["resourceVersion"],
                ):
                    return 409, status("Conflict")
                return 200, self.store(target, body)
            return self._patch(path, target, found, body, strategic="strategic" in content)

    def _patch(
        self, path: str, target: str, found: Object, body: Object, *, strategic: bool
    ) -> tuple[int, Object]:
        meta, said = found["metadata"], body.get("metadata") or {}
        if said.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            return 409, status("Conflict", "the object has been modified")
        if path.endswith("/status") and "/bindrequests/" in path:
            body = {"status": body["status"]}  # a definition's status: the server looks at nothing else
        elif said.get("uid", meta["uid"]) != meta["uid"]:
            return 422, status("Invalid", "metadata.uid: field is immutable")
        return 200, self.store(target, merged(found, body, strategic=strategic))

    def _delete(self, path: str, found: Object, options: Object) -> tuple[int, Object]:
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            return 409, status("Conflict")
        if found.get("kind") == "Pod" and found["spec"].get("nodeName"):
            meta = {**found["metadata"], "deletionTimestamp": "2026-11-20T12:00:30Z"}
            return 200, self.store(path, {**found, "metadata": meta})
        self._drop(path)
        return 200, status("", "Success")

    def _evict(self, path: str, body: Object) -> tuple[int, Object]:
        found = self.objects.get(path)
        if found is None:
            return 404, status("NotFound")
        if not self.allowed:
            causes = [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 pod"}]
            return 429, {**status("TooManyRequests", "it would violate"), "details": {"causes": causes}}
        self.allowed -= 1
        done, answer = self._delete(path, found, body.get("deleteOptions") or {})
        return (201, status("", "Success")) if done == 200 else (done, answer)

    def _bind(self, path: str, body: Object) -> tuple[int, Object]:
        pod = self.objects.get(path)
        if pod is None:
            return 404, status("NotFound")
        if pod["spec"].get("nodeName"):
            return 409, status("Conflict")
        annotations = {
            **(pod["metadata"].get("annotations") or {}),
            **(body["metadata"].get("annotations") or {}),
        }
        meta = {**pod["metadata"], "annotations": annotations}
        self.store(
            path, {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}}
        )
        return 201, {"kind": "Status", "status": "Success"}

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Object]:
        if path.rsplit("/", 1)[1] not in PLURALS:
            return 404, status("NotFound")
        plural = path.rsplit("/", 1)[1]
        group = path.split("/namespaces/")[0].rsplit(f"/{plural}", 1)[0]
        items = [
            item
            for key, item in sorted(self.objects.items())
            if key.startswith(group) and key.rsplit("/", 2)[1] == plural and selected(item, query)
        ]
        limit = int(query.get("limit") or 0) or len(items)
        start = int(query.get("continue") or 0)
        meta: Object = {"resourceVersion": str(self._version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return 200, {"metadata": meta, "items": items[start : start + limit]}

    def _watch(self, handler: BaseHTTPRequestHandler, path: str, version: int, query: dict[str, str]) -> None:
        if version < self.expired_before:
            self._answer(handler, 410, status("Expired"), {})
            return
        plural = path.rsplit("/", 1)[1]
        group = path.rsplit(f"/{plural}", 1)[0]
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        end = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        while time.monotonic() < end and not self._closing:
            with self._changed:
                news = [entry for entry in self.history if entry[0] > version]
                if not news and not self.bookmarks:
                    self._changed.wait(0.05)
            for number, kind, key, item in news:
                version = number
                if key.startswith(group) and key.rsplit("/", 2)[1] == plural and selected(item, query):
                    self._send(handler, {"type": kind, "object": item})
            if self.bookmarks:
                meta = {"resourceVersion": str(self._version)}
                self._send(handler, {"type": "BOOKMARK", "object": {"metadata": meta}})
                time.sleep(0.05)
        handler.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, event: Object) -> None:
        line = orjson.dumps(event) + b"\n"
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        handler.wfile.flush()

    @staticmethod
    def _answer(handler: BaseHTTPRequestHandler, number: int, body: Object, headers: dict[str, str]) -> None:
        data = orjson.dumps(body)
        handler.send_response(number)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        handler.wfile.flush()


def status(reason: str, message: str = "") -> Object:
    return {"kind": "Status", "reason": reason, "message": message or reason}


def selected(item: Object, query: dict[str, str]) -> bool:
    """Label selectors of the two forms that a pool needs."""
    text = query.get("labelSelector")
    labels = item["metadata"].get("labels") or {}

    def fits(term: str) -> bool:
        if term.startswith("!"):
            return term[1:] not in labels
        key, _, value = term.partition("=")
        return labels.get(key) == value

    return not text or all(map(fits, text.split(",")))


def merged(old: Any, patch: Any, *, strategic: bool) -> Any:
    """A merge patch; strategic ones merge lists of conditions by type."""
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and key == "conditions":
            kept = [c for c in result.get(key) or () if c["type"] not in {n["type"] for n in value}]
            result[key] = [*kept, *value]
        else:
            result[key] = merged(result.get(key, {}), value, strategic=strategic)
    return result
