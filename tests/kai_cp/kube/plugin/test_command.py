"""The plugin's own options, and what they make of the API server's lists."""

from __future__ import annotations

from typing import NoReturn

import pytest

from kai_cp.kube.plugin import take
from kai_cp.kube.plugin.command import COMMANDS, parsed, run
from kai_cp.reading import loaded
from kai_cp_models.settings import Settings
from tests.kai_cp.kube.stub import StubServer


@pytest.mark.parametrize(
    ("words", "namespace", "scheduler"),
    [
        ("pending --source api", "kai-resource-reservation", "kai-scheduler"),
        ("pending --source api --reservation-namespace=gpus --scheduler-name s", "gpus", "s"),
    ],
)
def test_the_lists_are_read_as_the_scheduler_is_set_up(
    server: StubServer, monkeypatch: pytest.MonkeyPatch, words: str, namespace: str, scheduler: str
) -> None:
    """A reservation pod of another namespace would count as one more pod that holds a GPU."""
    monkeypatch.setattr(take, "_transport", lambda _cluster: server.transport("reader"))
    data, origin = parsed(words.split()).taken()
    params = loaded(data, Settings()).raw["schedulerParams"]
    assert (params["resourceReservationNamespace"], params["schedulerName"]) == (namespace, scheduler)
    assert origin == "the API server's lists"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pnding", "there is no command pnding; the nearest: pending; `kubectl kai-cp -h` lists all"),
        ("pending --source x", "--source x: expected one of auto, scheduler, api"),
        ("snapshot take --zip", "snapshot take has no option --zip"),
    ],
)
def test_a_wrong_word_is_answered_with_the_words_there_are(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    assert capsys.readouterr().err == f"kai-cp: {said}\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("explain", 2, "name one pod group"),
        ("what-if", 2, "name a change"),
        ("queues --nothing", 2, "No such option: --nothing"),
        ("diff --nothing x.json", 2, "No such option: --nothing"),
        ("explain -h", 0, "Usage: kubectl kai-cp explain"),
        ("snapshot -h", 0, "Usage: kubectl kai-cp COMMAND"),
        ("snapshot take -h", 0, "snapshot take FILE"),
    ],
)
def test_words_are_read_before_the_cluster_is_asked(
    words: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(_cluster: take.ClusterChoice) -> NoReturn:
        pytest.fail("the cluster was asked")

    monkeypatch.setattr(take, "_transport", asked)
    assert run(words.split()) == status
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("words", ["pending -nteam-a", "pending -n=team-a", "-n team-a pending"])
def test_a_namespace_is_given_as_to_kubectl(words: str) -> None:
    """``-nteam-a`` went to the command, beside the namespace of the context."""
    request = parsed(words.split())
    assert (request.namespace, request.rest) == ("team-a", [])


def test_a_page_of_help_asks_for_no_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pending", "-h"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_of_help_is_without_the_snapshot_that_the_plugin_takes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "-h"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: kubectl kai-cp {command} [OPTIONS]")
    assert "SNAPSHOT" not in page
    assert ".zip" not in page.partition("Examples:")[2]
    assert f"\n  kubectl kai-cp {command}" in page
    assert "`kubectl kai-cp -h` has the options of all commands." in page


def test_the_page_of_diff_names_both_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "a.json", "-h"]) == 0
    assert "Usage: kubectl kai-cp diff [OPTIONS] A B" in capsys.readouterr().out
