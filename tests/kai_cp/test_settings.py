"""Settings files: what is accepted, and how errors are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kai_cp.report.settings import as_markdown
from kai_cp.settings import BadSettings, as_yaml, describe, digest, idle_weights, load
from kai_cp_models.settings import Settings
from tests.kai_cp.test_cli import run


def write(folder: Path, text: str) -> Path:
    path = folder / "kai-cp.yaml"
    path.write_text(text)
    return path


def test_nothing_given_means_defaults(tmp_path: Path) -> None:
    assert load() == load(write(tmp_path, "# nothing\n")) == Settings()


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "solver:\n  budget_seconds: 5\n  workers: 3\n")
    settings = load(path, {"solver.budget_seconds": 9.0, "solver.seed": None})
    assert (settings.solver.budget_seconds, settings.solver.workers, settings.solver.seed) == (9.0, 3, 0)


def test_settings_survive_being_written(tmp_path: Path) -> None:
    settings = load(None, {"solver.seed": 7, "rules.topology_spread": True})
    again = load(write(tmp_path, as_yaml(settings)))
    assert again == settings
    assert digest(again) == digest(settings) != digest(Settings())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "solver:\n  budget_second: 1\n",
            ":2: solver.budget_second: unknown key; did you mean solver.budget_",
        ),
        ("solvr: {seed: 1}\n", ":1: solvr: unknown key; did you mean solver?"),
        ("solver.seed: 1\n", ":1: solver.seed: unknown key; keys are nested: `solver: {seed: …}`"),
        (
            "objective: {weights.lost_work: 3}\n",
            ": unknown key; keys are nested: `objective: {weights: {lost_work: …}}`",
        ),
        ("solver: {seed: yes}\n", ":1: solver.seed: expected a number, not True"),
        ("users: {label: team/}\n", ":1: users.label: no label has the key 'team/'"),
        ("solver: {seed: }\n", ":1: solver.seed: expected a whole number, found nothing"),
        ("defrag: {mode: acts}\n", ":1: defrag.mode: expected 'report' or 'act', not 'acts'"),
        ("explain:\n  fix_order: [wait, mov]\n", ":2: explain.fix_order: expected 'repair', 'wait', 'unc"),
        ("ceilings: off\n", ":1: ceilings: unknown key; `kai-cp config explain` lists all keys"),
        (
            "solver:\n  workers: 0\n",
            ":2: solver.workers: expected a number greater than or equal to 1, not 0",
        ),
        (
            "solver:\n  seed: 100000000000000000000\n",
            ":2: solver.seed: expected a number less than or equal to 1000000000",
        ),
        ("objective:\n  goals: [x]\n", ":2: objective.goals: no goal 'x'"),
        ("solver:\n  seed: 1\n  seed: 2\n", ":3: solver.seed: given twice"),
        ("solver: {seed: 1, seed: 1}\n", ":1: solver.seed: given twice"),
        ("solver: 1\nx: [1\n", "not YAML: line 3: expected ',' or ']'"),
        ("defrag:\n  goal: x\n", ":2: defrag.goal: 'x' is not nodes=4, rack=1 or gang=8x8@rack=2"),
        ("defrag: {goal: gang=0x8=1}\n", ":1: defrag.goal: 'gang=0x8': a gang has at least one pod"),
        ("solver: " + 2000 * "[", "not YAML: it is nested too deep"),
        ("solver: &x {budget_seconds: *x}\n", "not YAML: it has more than 200000 values"),
        ("- a\n", 'expected keys and values, not ["a"]'),
        ("solver: 3\n", ":1: solver: expected keys and values, not 3"),
        ("solver: {budget_seconds: x}\n", ":1: solver.budget_seconds: expected a number, not 'x'"),
        ("solver: {workers: 1.5}\n", ":1: solver.workers: expected a whole number, not 1.5"),
        ("reservations: {enabled: 3}\n", ":1: reservations.enabled: expected true or false, not 3"),
        ("objective: {goals: []}\n", ":1: objective.goals: expected at least one entry, not []"),
    ],
)
def test_wrong_file_names_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadSettings) as error:
        load(path)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)


def test_an_option_does_not_hide_a_section_without_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "solver: 5\n")
    for given in ({"overrides": {"solver.budget_seconds": 9.0}}, {"defaults": {"solver.patience": 1.0}}):
        with pytest.raises(BadSettings, match=":1: solver: expected keys and values, not 5"):
            load(path, **given)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"none\.yaml: cannot be read"):
        load(tmp_path / "none.yaml")


def test_every_setting_is_explained() -> None:
    for setting in describe():
        assert setting.meaning, setting.path
        assert setting.allowed, setting.path


def test_page_in_the_docs_is_the_one_made_from_the_settings() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text("utf-8") == as_markdown(describe()), "run: make docs"


def test_kinds_of_fixes_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("explain: {fix_order: [stop, wait]}")
    assert load(path).explain.fix_order == ("stop", "wait")
    path.write_text("explain: {fix_order: [stop, wait, stop]}")
    with pytest.raises(BadSettings, match="stop is named twice"):
        load(path)


def test_no_number_is_larger_than_the_engine_can_count() -> None:
    """Whatever the setting: 10^20, which overflows somewhere, and what is no finite number are refused."""
    for setting in describe():
        if isinstance(setting.default, bool) or not isinstance(setting.default, int | float):
            continue
        for value in (10**20, 1e400, float("nan")):
            with pytest.raises(BadSettings, match=re.escape(setting.path)):
                load(None, {setting.path: value})


def test_settings_say_in_words_which_values_they_take() -> None:
    for setting in describe():
        words = r"(list of: )?[a-z_ -]+(, [a-z_-]+)*( [≥>≤<] -?[\d,.]+)*"
        assert re.fullmatch(words, setting.allowed), setting


def test_in_a_pipe_a_setting_is_two_lines_without_padding() -> None:
    lines = run("config", "explain").stdout.split("\n")[:-1]
    assert lines == [line.rstrip() for line in lines]
    assert len(lines) == 3 * len(describe())


@pytest.mark.parametrize(
    ("key", "heads"),
    [
        ("max_runtime", ["max_runtime.enforce", "max_runtime.requeue_delay_seconds"]),
        ("aging.most_points", ["aging.most_points"]),
        ("most_points", ["aging.most_points"]),
    ],
)
def test_one_setting_or_one_section_is_explained(key: str, heads: list[str]) -> None:
    found = run("config", "explain", key).stdout
    assert [line.partition(" = ")[0] for line in found.splitlines() if line[:1].strip()] == heads


def test_of_an_option_and_a_file_the_one_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("solver: {budget_seconds: 3, workers: 0}")
    with pytest.raises(
        BadSettings, match=r"c\.yaml: solver\.budget_seconds: .* greater than 0, not -1\n.*:1: .*workers"
    ):
        load(file, {"solver.budget_seconds": -1})


@pytest.mark.parametrize(
    ("objective", "idle"),
    [
        ("{}", []),
        ("{weights: {moved_pods: 2}}", ["moved_pods"]),
        (
            "{goals: [threshold, lost_work + moved_pods], weights: {moved_pods: 2, moved_groups: 2}}",
            ["moved_groups"],
        ),
        ("{goals: [moved_pods], weights: {moved_pods: 2}}", ["moved_pods"]),
    ],
)
def test_a_weight_that_counts_nowhere_is_named(tmp_path: Path, objective: str, idle: list[str]) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(f"objective: {objective}\n")
    assert [said.split(":")[0].rpartition(".")[2] for said in idle_weights(load(path))] == idle
    shown = run("config", "show", "--config", str(path))
    assert (shown.returncode, shown.stderr.count("has no effect")) == (0, len(idle))


def test_a_whole_number_is_shown_without_decimals() -> None:
    with pytest.raises(BadSettings, match=r"not -1$"):
        load(None, {"solver.budget_seconds": -1.0})
