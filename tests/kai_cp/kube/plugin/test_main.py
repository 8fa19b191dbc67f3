"""The plugin's own options, and what they make of the API server's lists."""

from __future__ import annotations

import pytest

from kai_cp.kube.plugin import take
from kai_cp.kube.plugin.main import parsed, run
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
    ],
)
def test_a_wrong_word_is_answered_with_the_words_there_are(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    assert capsys.readouterr().err == f"kai-cp: {said}\n"
