"""Admission on a real API server: how it changes objects, and that no request fails while it changes
itself.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kai_cp.kube.admission.certificates import (
    AUTHORITY_LIVES,
    RENEW_AT,
    ends_at,
    make_authority,
    parse,
    sign,
)
from kai_cp.kube.admission.options import FailurePolicy, RegistrationOptions
from kai_cp.kube.admission.registration import configurations
from kai_cp.kube.api import access
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.demo.controlplane import free_port
from tests.e2e.admin import AdminTransport
from tests.e2e.balancer import Balancer
from tests.e2e.world import PATIENCE_SECONDS, Program, World

SYSTEM = "kai-scheduler"
Object = dict[str, Any]


def kind_of(configuration: Object) -> Any:
    return r.MUTATING_WEBHOOKS if configuration["kind"].startswith("Mutating") else r.VALIDATING_WEBHOOKS


@contextmanager
def registered(
    api: AdminTransport, port: int, policy: FailurePolicy = FailurePolicy.FAIL, data: Object | None = None
) -> Iterator[None]:
    """The Secret, the webhook configurations and a runtime class, for as long as the test runs."""
    api.create(r.RUNTIME_CLASSES, "", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    meta = {"name": access.ADMISSION_SECRET, "namespace": SYSTEM}
    api.create(r.SECRETS, SYSTEM, {"metadata": meta, "type": "Opaque", **({"data": data} if data else {})})
    found = configurations(RegistrationOptions(policy, url=f"https://127.0.0.1:{port}"))
    for configuration in found:
        api.create(kind_of(configuration), "", configuration)
    try:
        yield
    finally:
        for configuration in found:
            api.delete(kind_of(configuration), "", configuration["metadata"]["name"])
        api.delete(r.SECRETS, SYSTEM, access.ADMISSION_SECRET)
        api.delete(r.RUNTIME_CLASSES, "", "nvidia")


def bundle_of(api: AdminTransport) -> bytes:
    """``caBundle`` as the API server has it now."""
    found = api.get(r.VALIDATING_WEBHOOKS, "", "kai-queue-validation-v2") or {}
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle") or "")


def published(world: World) -> bool:
    """Whether every configuration has its bundle."""
    names = [(r.MUTATING_WEBHOOKS, name) for name in access.MUTATING_CONFIGURATIONS]
    names += [(r.VALIDATING_WEBHOOKS, name) for name in access.VALIDATING_CONFIGURATIONS]
    found = [world.api.get(kind, "", name) or {} for kind, name in names]
    return all(hook["clientConfig"].get("caBundle") for entry in found for hook in entry["webhooks"])


def fraction(world: World, name: str, value: str = "0.5", **extra: Any) -> Object:
    """Create a pod that asks for a part of a GPU; it stays gated."""
    meta: Object = {"namespace": world.namespace, "annotations": {"gpu-fraction": value}}
    meta |= {"generateName": name} if name.endswith("-") else {"name": name}
    spec = {
        "schedulerName": "kai-scheduler",
        "schedulingGates": [{"name": "test/held"}],
        "containers": [{"name": "main", "image": "none"}],
        **extra,
    }
    return world.api.create(r.PODS, world.namespace, {"metadata": meta, "spec": spec})


def works(world: World) -> bool:
    """Whether the API server reaches admission; it takes a while to see registrations."""
    try:
        return wired(fraction(world, "works-"))
    except ApiError:
        return False


def refusal(call: Any) -> str:
    """The text of a refusal."""
    with pytest.raises(ApiError) as caught:
        call()
    assert caught.value.status == 403, caught.value
    return caught.value.message


def queue_below(world: World, name: str, parent: str) -> str:
    """A queue below another one, once the server's watch has told it of that one."""

    def made() -> str | None:
        try:
            return world.add_queue(name, parent)
        except ApiError as refused:
            if "there is no such queue" not in refused.message:
                raise
            return None

    return str(world.until(made, f"the server knows queue {parent}"))


def wired(pod: Object) -> bool:
    """Whether a pod was changed by admission."""
    variables = {entry["name"] for entry in pod["spec"]["containers"][0].get("env") or ()}
    annotated = "runai/shared-gpu-configmap" in pod["metadata"]["annotations"]
    return annotated and {"NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"} <= variables


def one_replica(world: World, *flags: str) -> tuple[int, Program]:
    port = free_port()
    return port, world.admission(port, "--gpu-sharing-enabled", *flags)


def test_admission_judges_what_is_written(world: World) -> None:
    port, process = one_replica(world, "--drain-seconds=0", "--enable-quota-validation")
    api = world.api
    # It was stored without admission, and it must still be possible to label and delete it.
    old = fraction(world, "old", "7")
    with registered(api, port):
        world.until(lambda: published(world), "caBundle is written")
        world.until(lambda: works(world), "the server knows the bundle")
        made = fraction(world, "infer-")
        assert made["metadata"]["annotations"]["runai/shared-gpu-configmap"].startswith("infer-")
        assert made["spec"]["runtimeClassName"] == "nvidia"
        assert "smaller than 1.0" in refusal(lambda: fraction(world, "much", "1.5"))
        assert api.patch(r.PODS, world.namespace, "old", {"metadata": {"labels": {"a": "b"}}})
        worse = {"metadata": {"annotations": {"gpu-fraction": "8"}}}
        assert "smaller than 1.0" in refusal(lambda: api.patch(r.PODS, world.namespace, "old", worse))
        world.add_pod("whole", "none", 1)
        assert "both GPU fraction" in refusal(lambda: api.patch(r.PODS, world.namespace, "whole", worse))

        parent = world.add_queue("parent")
        child = queue_below(world, "child", parent)
        queue_below(world, "grandchild", child)
        assert child in refusal(lambda: api.delete(r.QUEUES, "", parent))
        body = {"metadata": {"name": f"{world.name}-empty"}, "spec": {}}
        assert "resources must be specified" in refusal(lambda: api.create(r.QUEUES, "", body))
        assert "create it before" in refusal(lambda: world.add_queue("orphan", "nobody"))
        bad: Object = {"queue": child, "subGroups": [{"name": "a"}]}
        meta = {"name": "g", "namespace": world.namespace}
        group = {"metadata": meta, "spec": bad}
        text = refusal(lambda: api.create(r.POD_GROUPS, world.namespace, group))
        assert "subgroup a: minMember is required" in text
        process.kill()
        world.add_pod("elsewhere", "none", 0, spec={"schedulerName": "default-scheduler"})
        world.add_pod("whole-too", "none", 1)
        assert api.patch(r.PODS, world.namespace, "whole", {"metadata": {"annotations": {"a": "b"}}})
        with pytest.raises(ApiError) as caught:
            fraction(world, "alone")
        assert caught.value.status == 500
        assert api.patch(r.PODS, world.namespace, "old", {"metadata": {"labels": {"a": "c"}}})
    assert "7" in old["metadata"]["annotations"]["gpu-fraction"]


def test_admission_that_is_away_may_be_passed_by(world: World) -> None:
    port = free_port()
    with registered(world.api, port, FailurePolicy.IGNORE):
        process = world.admission(port, "--gpu-sharing-enabled")
        world.until(lambda: works(world), "the server knows the webhooks")
        process.kill()
        assert not wired(fraction(world, "alone"))


def aged(lifetime: float) -> Object:
    """Data of a Secret whose authority is soon due for renewal, while its certificate is fresh."""
    now = time.time()
    age = RENEW_AT * AUTHORITY_LIVES * lifetime - 2 * lifetime
    authority, authority_key = make_authority(AUTHORITY_LIVES * lifetime, now - age)
    certificate, key = sign(authority, authority_key, ["127.0.0.1"], lifetime, now)
    parts = {"ca.crt": authority, "ca.key": authority_key, "tls.crt": certificate, "tls.key": key}
    return {name: base64.b64encode(value).decode() for name, value in parts.items()}


def call(port: int, authorities: bytes) -> bytes:
    """Call the webhook on a new connection, as an API server that just started does; returns the
    certificate.
    """
    context = ssl.create_default_context(cadata=authorities.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE_SECONDS)
    try:
        pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "kai-scheduler"}}
        request = {"uid": "u", "operation": "CREATE", "namespace": "n", "object": pod}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        connection.request("POST", "/mutate--v1-pod", json.dumps(review))
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["response"]["allowed"]
        sock: Any = connection.sock
        return ssl.DER_cert_to_PEM_cert(sock.getpeercert(binary_form=True)).encode()
    finally:
        connection.close()


@contextmanager
def ending(over: threading.Event) -> Iterator[None]:
    """Tell the threads to end, whatever happened."""
    try:
        yield
    finally:
        over.set()


def test_certificates_rotate_under_load(world: World) -> None:
    """Serving certificates and their authority are replaced; no call fails on old or new connections."""
    lifetime = 15.0
    api = world.api
    port, _process = one_replica(world, f"--certificate-lifetime={lifetime:g}")
    with registered(api, port, data=aged(lifetime)):
        world.until(lambda: published(world), "caBundle is written")
        world.until(lambda: works(world), "the server knows the bundle")
        shown: list[bytes] = []
        authorities: set[bytes] = set()
        made: list[Object] = []
        over = threading.Event()

        def create() -> None:
            while not over.is_set():
                pod = fraction(world, "load-")
                made.append(pod)
                api.delete(r.PODS, world.namespace, pod["metadata"]["name"], grace=0)

        def connect() -> None:
            while not over.is_set():
                known = bundle_of(api)
                # An API server may have looked a moment ago.
                over.wait(0.1)
                shown.append(call(port, known))
                authorities.add(known)

        with ThreadPoolExecutor(3) as pool, ending(over):
            work = [pool.submit(create), pool.submit(create), pool.submit(connect)]
            rotated = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < rotated and not any(job.done() for job in work):
                issuers = {parse(pem)[0].issuer for pem in shown}
                if len(set(shown)) >= 4 and len(issuers) >= 2:
                    break
                time.sleep(0.2)
            over.set()
            for job in work:
                job.result()
        assert len(set(shown)) >= 4, "certificates"
        assert len({parse(pem)[0].issuer for pem in shown}) >= 2, "authorities that signed"
        assert len(authorities) >= 2
        assert ends_at(shown[-1]) > time.time()
        assert len(made) > 50
        assert all(wired(pod) for pod in made)


def test_a_replica_ends_under_load(world: World) -> None:
    """SIGTERM costs no call. SIGKILL costs the calls in progress, and a client that tries again loses
    no pod.
    """
    api = world.api
    ports = [free_port(), free_port()]
    replicas = [world.admission(port, "--gpu-sharing-enabled", "--drain-seconds=10") for port in ports]
    with (
        Balancer([(port, one.listen) for port, one in zip(ports, replicas, strict=True)]) as balancer,
        registered(api, balancer.port),
    ):
        world.until(lambda: balancer.ready == 2 and published(world), "both replicas are ready")
        world.until(lambda: works(world), "the server knows the bundle")
        failed: list[str] = []

        def create(number: int) -> Object:
            attempts = 0
            while attempts < 40:
                attempts += 1
                try:
                    return fraction(world, f"pod-{number}")
                except ApiError as error:
                    if error.status == 409 and attempts > 1:
                        return api.get(r.PODS, world.namespace, f"pod-{number}") or {}
                    failed.append(str(error))
                    time.sleep(0.05)
            raise AssertionError(failed[-1])

        def load(first: int, last: int, harm: int, process: Program, number: int) -> list[Object]:
            with ThreadPoolExecutor(4) as pool:
                jobs = []
                for i in range(first, last):
                    jobs.append(pool.submit(create, i))
                    if i == first + harm:
                        jobs[-1].result()
                        process.kill(number)
                return [job.result() for job in jobs]

        gentle = load(0, 80, 20, replicas[0], signal.SIGTERM)
        assert replicas[0].wait(PATIENCE_SECONDS) == 0
        assert failed == []
        replicas[0] = world.admission(ports[0], "--gpu-sharing-enabled")
        balancer.replicas[0] = (ports[0], replicas[0].listen)
        world.until(lambda: balancer.ready == 2, "the replica is back")
        hard = load(80, 160, 20, replicas[1], signal.SIGKILL)
        assert all(wired(pod) for pod in gentle + hard)
        assert len({pod["metadata"]["name"] for pod in gentle + hard}) == 160
