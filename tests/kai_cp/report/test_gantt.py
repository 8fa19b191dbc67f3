"""The picture of nodes over time keeps its parts apart, however long the names are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_cp.cli.app import app

DEMO = Path(__file__).parents[3] / "examples" / "demo-cluster.json"
END = "-of-the-platform-team-for-language-models-in-europe-west-4-blue"


def long_names(found: dict[str, Any]) -> dict[str, Any]:
    """The sample cluster with names of 63 characters, and a queue that may hold its waiting gang."""
    named = {
        item["metadata"]["name"] for kind in ("nodes", "podGroups") for item in found["rawObjects"][kind]
    }

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one) for one in value]
        return (value + END)[:62] + "x" if isinstance(value, str) and value in named else value

    made: dict[str, Any] = {**found, "rawObjects": renamed(found["rawObjects"])}
    for queue in made["rawObjects"]["queues"]:
        if queue["metadata"]["name"] == "serving":
            queue["spec"]["resources"]["gpu"]["limit"] = 40
    return made


def test_names_and_legend_leave_the_bars_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr("matplotlib.pyplot.close", figures.append)
    snapshot, settings = tmp_path / "long.json", tmp_path / "settings.yaml"
    snapshot.write_text(json.dumps(long_names(json.loads(DEMO.read_text("utf-8")))))
    settings.write_text(
        "reservations: {enabled: true, after_seconds: 0, min_gpus: 2, within: limit}\n"
        "time: {default_runtime_seconds: 7200}\n"
    )
    words = ["reserve", snapshot, "--config", settings, "--picture", tmp_path / "plan.svg"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    (figure,) = figures
    (axes,), (legend,) = figure.axes, figure.legends
    assert "reserved for " in legend.get_texts()[0].get_text()
    bars, line = axes.get_window_extent(), legend.get_window_extent()
    assert not bars.overlaps(line)
    assert bars.width > 0.6 * figure.bbox.width
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(labels) == 8
