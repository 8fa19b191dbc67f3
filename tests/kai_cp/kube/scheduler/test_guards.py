"""At its start the scheduler says what users can do if no policy guards its annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.resources import ADMISSION_POLICIES, Resource
from kai_cp.kube.scheduler.guards import unguarded
from kai_cp_models.settings import Settings

POLICIES = Path(__file__).parents[4] / "deploy/chart/kai-cp/files/policies.yaml"
RESERVING = {"reservations": {"enabled": True}}
NOTES = ["kai-cp/reservation", "kai-cp/ended", "kai-cp/max-runtime"]
DELAYED = {"max_runtime": {"enforce": True, "requeue_delay_seconds": 600}}


class Server:
    """Answers with these objects; None: it does not know such kinds."""

    def __init__(self, objects: list[dict[str, Any]] | None) -> None:
        self.objects = objects

    def list_pages(self, resource: Resource) -> tuple[list[dict[str, Any]], str]:
        if self.objects is None:
            raise ApiError(404, "NotFound", "no such kind")
        return [one for one in self.objects if one["kind"] == resource.kind], "1"


def chart() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(POLICIES.read_text()))


def told(objects: list[dict[str, Any]] | None, settings: dict[str, Any]) -> str:
    return unguarded(Server(objects), Settings.model_validate(settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [RESERVING, DELAYED, RESERVING | DELAYED])
def test_the_policies_of_the_chart_guard_all_of_it(settings: dict[str, Any]) -> None:
    assert told(chart(), settings) == ""


def test_where_nothing_is_remembered_nothing_is_asked_for() -> None:
    assert told(None, {}) == told(None, {"max_runtime": {"enforce": True}}) == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (RESERVING, ["kai-cp/reservation"]),
        (DELAYED, ["kai-cp/ended"]),
        (
            RESERVING | {"max_runtime": {"enforce": True, "requeue_delay_seconds": 0}},
            ["kai-cp/reservation", "kai-cp/max-runtime"],
        ),
        (RESERVING | DELAYED, NOTES),
    ],
)
def test_the_guards_say_what_users_can_do(settings: dict[str, Any], words: list[str]) -> None:
    policies = [one for one in chart() if one["kind"] == ADMISSION_POLICIES.kind]
    bindings = [one for one in chart() if one["kind"] != ADMISSION_POLICIES.kind]
    audited = [*policies, *({**b, "spec": {**b["spec"], "validationActions": ["Audit"]}} for b in bindings)]
    for objects in (None, [], policies, bindings, audited):
        found = told(objects, settings)
        assert "kai-cp-promises" in found
        assert [word for word in NOTES if word in found] == words
