"""``kai-cp gpu-reservation``: which GPU this pod holds, as NVIDIA's own library reads it from the driver.

The driver's library is played; everything above it is real, nvidia-ml-py included.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
import yaml
from typer.testing import CliRunner

from kai_cp import keys
from kai_cp.kube.api import resources as r
from kai_cp.kube.binder import gpu_reservation
from kai_cp.kube.cli import app
from kai_cp.kube.serving.process import Connection, Lifecycle
from tests.kai_cp.kube.conftest import PATIENCE_SECONDS, until
from tests.kai_cp.kube.samples import pod
from tests.kai_cp.kube.stub import StubServer

UUID = "GPU-7e4a3b62-6c1f-0f55-9f0e-1f8cf2f9c0de"


def kubeconfig(server: StubServer, folder: Path) -> str:
    host = server.transport()._settings.host  # noqa: SLF001
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": host}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


class Driver:
    """``libnvidia-ml.so.1`` with some GPUs; ``faults`` are status codes by function."""

    def __init__(self, uuids: list[str]) -> None:
        self.uuids = uuids
        self.faults: dict[str, int] = {}
        self.open = 0

    def _answer(self, name: str, act: Callable[[], object]) -> int:
        if name not in self.faults:
            act()
        return self.faults.get(name, pynvml.NVML_SUCCESS)

    def __getattr__(self, name: str) -> Any:
        functions: dict[str, Callable[..., int]] = {
            "nvmlInitWithFlags": lambda _flags: self._answer("init", self._begin),
            "nvmlShutdown": lambda: self._answer("shutdown", self._end),
            "nvmlDeviceGetCount_v2": lambda out: self._answer("count", lambda: self._count(out)),
            "nvmlDeviceGetHandleByIndex_v2": lambda i, out: self._answer(
                "handle", lambda: self._handle(i.value, out)
            ),
            "nvmlDeviceGetUUID": lambda handle, out, _size: self._answer(
                "uuid", lambda: setattr(out, "value", self._uuid(handle))
            ),
        }
        if name not in functions:
            raise AttributeError(name)
        return functions[name]

    def _begin(self) -> None:
        self.open += 1

    def _end(self) -> None:
        self.open -= 1

    def _count(self, out: Any) -> None:
        out._obj.value = len(self.uuids)  # noqa: SLF001

    def _handle(self, index: int, out: Any) -> None:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = 0x1000 + index

    def _uuid(self, handle: Any) -> bytes:
        return self.uuids[ctypes.cast(handle, ctypes.c_void_p).value - 0x1000].encode()  # type: ignore[operator]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    played = Driver([UUID])
    monkeypatch.delenv(gpu_reservation.FAKE_VARIABLE, raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", played)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield played
    assert played.open == 0, "the library is given back"


def test_the_one_gpu_is_named(driver: Driver) -> None:
    assert gpu_reservation.device_uuid() == UUID


@pytest.mark.parametrize("uuids", [[], [UUID, UUID[:-1] + "f"]])
def test_a_reservation_is_for_one_gpu(driver: Driver, uuids: list[str]) -> None:
    driver.uuids = uuids
    with pytest.raises(gpu_reservation.NoDevice, match=f"sees {len(uuids)} GPUs"):
        gpu_reservation.device_uuid()


@pytest.mark.parametrize("function", ["init", "count", "handle", "uuid"])
def test_a_failing_driver_is_reported(driver: Driver, function: str) -> None:
    driver.faults[function] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(gpu_reservation.NoDevice, match="NVML does not name the GPU"):
        gpu_reservation.device_uuid()


def test_the_reservation_pod_gets_its_device(driver: Driver, server: StubServer, tmp_path: Path) -> None:
    server.put(r.PODS, pod("reservation"))
    life = Lifecycle()
    connection = Connection(kubeconfig(server, tmp_path))
    thread = threading.Thread(target=gpu_reservation.run, args=(connection, life, "ns", "reservation"))
    thread.start()

    def told() -> bool:
        item = server.get(r.PODS, "ns", "reservation")
        return item is not None and item["metadata"]["annotations"].get(keys.RESERVED_DEVICE) == UUID

    until(told)
    assert thread.is_alive(), "it holds the GPU until it is told to end"
    life.end()
    thread.join(PATIENCE_SECONDS)


def test_the_command_ends_with_a_word_where_there_is_no_gpu(
    driver: Driver, server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lifecycle, "handle_signals", lambda _life: None)
    driver.uuids = []
    arguments = ["gpu-reservation", "--kubeconfig", kubeconfig(server, tmp_path)]
    ended = CliRunner().invoke(app, arguments, env={"POD_NAME": "reservation", "POD_NAMESPACE": "ns"})
    assert ended.exit_code == 1
    assert "sees 0 GPUs" in ended.output
    assert server.requests("PATCH") == []


def test_the_reservation_names_its_device_and_holds_it(server: StubServer, tmp_path: Path) -> None:
    server.put(r.PODS, pod("gpu-reservation-x"))
    life = Lifecycle()
    connection = Connection(kubeconfig(server, tmp_path))
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(
            gpu_reservation.run(connection, life, "ns", "gpu-reservation-x", lambda: "GPU-1")
        )
    )
    thread.start()

    def device() -> Any:
        item = server.get(r.PODS, "ns", "gpu-reservation-x")
        assert item is not None
        return item["metadata"]["annotations"].get(keys.RESERVED_DEVICE)

    until(lambda: device() == "GPU-1")
    assert thread.is_alive()
    life.end()
    thread.join(PATIENCE_SECONDS)
    assert found == [0]
    assert {k.lower(): v for k, v in server.headers[-1].items()}["authorization"] == "Bearer t"


def test_a_pod_that_is_not_there(server: StubServer, tmp_path: Path) -> None:
    connection = Connection(kubeconfig(server, tmp_path))
    assert gpu_reservation.run(connection, Lifecycle(), "ns", "nobody", lambda: "GPU-1") == 1


def test_the_device_may_be_given_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_reservation.FAKE_VARIABLE, "GPU-fake")
    assert gpu_reservation.device_uuid() == "GPU-fake"


def test_a_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_reservation.FAKE_VARIABLE, raising=False)
    with pytest.raises(gpu_reservation.NoDevice, match="NVML"):
        gpu_reservation.device_uuid()
