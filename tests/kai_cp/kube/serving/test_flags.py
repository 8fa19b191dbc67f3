"""Flags come from the dataclasses that they fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from kai_cp.kube import cli
from kai_cp.kube.api.lease import LeaseTimes
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.scheduler.options import Mode, SchedulerOptions
from kai_cp.kube.serving.flags import LeaseFlag, Seconds, expanded
from kai_cp.kube.serving.process import Service


@dataclass(frozen=True)
class Sample:
    name: Annotated[str, typer.Option(help="A name.")] = "n"
    wait_time: Annotated[float, Seconds("A time.")] = 1.5
    lease: LeaseFlag = LeaseTimes()
    careful: bool = False


def run(*arguments: str) -> tuple[Sample, int] | str:
    """What a command made of its flags, or its error."""
    app = typer.Typer()
    got: list[tuple[Sample, int]] = []

    @app.command()
    @expanded
    def command(sample: Sample, number: Annotated[int, typer.Option()] = 3) -> None:
        got.append((sample, number))

    answer = CliRunner().invoke(app, arguments)
    return got[0] if answer.exit_code == 0 else answer.output


def test_defaults_are_the_dataclass_s() -> None:
    assert run() == (Sample(), 3)


def test_every_kind_of_flag() -> None:
    given = run("--name=x", "--wait-time", "1m30s", "--lease-seconds=3,2,0.5", "--careful", "--number=4")
    assert given == (Sample("x", 90.0, LeaseTimes(3.0, 2.0, 0.5), True), 4)


def test_a_plain_number_is_seconds() -> None:
    assert run("--wait-time=-1") == (Sample(wait_time=-1.0), 3)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--wait-time=soon", "soon"),
        ("--lease-seconds=1,2,3", "renew deadline"),
        ("--lease-seconds=a,b,c", "15,10,5"),
        ("--lease-seconds=1,2", "is not three numbers"),
        ("--lease-seconds=15,10", "15,10,5"),
    ],
)
def test_bad_values_are_named(flag: str, said: str) -> None:
    answer = run(flag)
    assert isinstance(answer, str)
    assert said in answer


def test_webhooks_are_called_by_https_only() -> None:
    done = CliRunner().invoke(cli.app, ["webhooks", "--url", "http://host:1"])
    assert done.exit_code == 2
    assert "does not begin with https://" in " ".join(done.output.replace("│", " ").split())
    assert CliRunner().invoke(cli.app, ["webhooks", "--url", "https://host:1"]).exit_code == 0


def test_the_processes_get_their_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def remember(setup: object, _life: object) -> int:
        told.append(setup)
        return 0

    monkeypatch.setattr(cli, "_begin", lambda _logging: None)
    monkeypatch.setattr("kai_cp.kube.scheduler.process.run", remember)
    monkeypatch.setattr("kai_cp.kube.binder.process.run", remember)
    runner = CliRunner()
    arguments = ["scheduler", "--mode=advise", "--schedule-period=2s", "--leader-elect", "--qps=7"]
    assert runner.invoke(cli.app, arguments).exit_code == 0
    assert runner.invoke(cli.app, ["binder", "--cdi-enabled", "--listen-address="]).exit_code == 0
    scheduler, binder = told
    assert scheduler.options == SchedulerOptions(mode=Mode.ADVISE, schedule_period=2.0)  # type: ignore[attr-defined]
    assert scheduler.service == Service(leader_elect=True, qps=7.0)  # type: ignore[attr-defined]
    assert binder.options == BinderOptions(cdi_enabled=True)  # type: ignore[attr-defined]
    assert binder.service == Service(listen_address="")  # type: ignore[attr-defined]
