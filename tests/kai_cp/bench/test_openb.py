"""The openb machinery on clusters made by hand: exact protocol, books, budgets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kai_cp.bench.openb import trace
from kai_cp.bench.openb.admission import EVERY, TraceAdmission
from kai_cp.bench.openb.cluster import TraceCluster
from kai_cp.bench.openb.migrate import SHARE, MigratingPolicy
from kai_cp.bench.openb.policies import BestFit, FragmentationGradient, Fragments, candidates
from kai_cp.bench.openb.priced import Priced
from kai_cp.bench.openb.repacked import repacked
from kai_cp.bench.openb.suite import POLICIES, REPACKED, one, simulate

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n-{i:02},{32_000 if i % 2 else 96_000},262144,{2 if i % 2 else 8},{'T4' if i % 2 else 'G2'}\n"
    for i in range(12)
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    + "".join(
        line.format(i=i)
        for i in range(40)
        for line in (
            "a{i},3152,5600,1,810,\n",
            "b{i},11300,49152,1,1000,G2\n",
            "c{i},8000,30517,1,470,\n",
            "d{i},4000,8000,1,160,T4|G2\n",
        )
    )
    + "e,16000,30517,0,0,\nf,16000,64000,2,1000,\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_tiny.csv").write_text(PODS)
    return tmp_path


@pytest.fixture
def setting(folder: Path) -> tuple[trace.Nodes, trace.Classes, trace.Ints]:
    nodes = trace.read_nodes(folder)
    classes, of_pods = trace.read_pods(folder, "tiny", nodes.models)
    return nodes, classes, of_pods


def test_arrivals_ask_for_the_target_and_no_more(
    setting: tuple[trace.Nodes, trace.Classes, trace.Ints],
) -> None:
    nodes, classes, of_pods = setting
    for ratio in (0.5, 1.3, 5.0):
        sequence = trace.arrivals(classes, of_pods, nodes, 42, ratio)
        asked = int(classes.total[sequence].sum())
        assert asked <= ratio * nodes.total_milli_gpus < asked + 2001
    again = trace.arrivals(classes, of_pods, nodes, 42)
    assert (again == trace.arrivals(classes, of_pods, nodes, 42)).all()
    assert not (again == trace.arrivals(classes, of_pods, nodes, 43)[: len(again)]).all()


@pytest.mark.parametrize("policy", [*sorted(POLICIES), REPACKED])
def test_runs_end_legal_and_within_the_budget_of_moves(folder: Path, policy: str) -> None:
    result = one((folder, "tiny", policy, 1))
    assert result.errors == ()
    assert 60 < result.used <= 100


def test_a_pod_that_fits_is_never_refused_without_admission(
    setting: tuple[trace.Nodes, trace.Classes, trace.Ints],
) -> None:
    nodes, classes, of_pods = setting
    cluster = TraceCluster(nodes, classes)
    policy = Priced(cluster)
    for pod, value in enumerate(trace.arrivals(classes, of_pods, nodes, 7)):
        c = int(value)
        choice = policy.choose(c)
        assert (choice is not None) == bool(cluster.fits(c).any())
        if choice is not None:
            cluster.place(pod, c, *choice)


def test_scores_that_are_kept_equal_fresh_ones(
    setting: tuple[trace.Nodes, trace.Classes, trace.Ints],
) -> None:
    nodes, classes, of_pods = setting
    cluster = TraceCluster(nodes, classes)
    policy = FragmentationGradient(cluster)
    for pod, value in enumerate(trace.arrivals(classes, of_pods, nodes, 3)):
        c = int(value)
        fresh, _ = policy.score(c, np.arange(len(nodes.cpu)))
        assert (policy.scores(c) == fresh).all()
        choice = policy.choose(c)
        if choice is not None:
            cluster.place(pod, c, *choice)


def test_nodes_are_shuffled_by_the_seed(setting: tuple[trace.Nodes, trace.Classes, trace.Ints]) -> None:
    nodes, _, _ = setting

    def listed(some: trace.Nodes) -> list[tuple[int, ...]]:
        columns = (some.cpu, some.memory, some.gpus, some.model)
        return [tuple(int(v) for v in row) for row in zip(*columns, strict=True)]

    mixed = listed(trace.shuffled(nodes, 1))
    assert sorted(mixed) == sorted(listed(nodes))
    assert mixed == listed(trace.shuffled(nodes, 1))
    assert len({tuple(listed(trace.shuffled(nodes, seed))) for seed in range(5)}) > 1


def test_admission_refuses_what_wastes_while_better_is_to_come(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn-0,800000,999999,8,G2\n"
    )
    (tmp_path / "openb_pod_list_two.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
        + "".join(f"a{i},1000,1,1,810,\nb{i},1000,1,1,1000,\n" for i in range(100))
    )
    nodes = trace.read_nodes(tmp_path)
    classes, _ = trace.read_pods(tmp_path, "two", nodes.models)
    share, whole = np.argsort(classes.milli).tolist()
    # 9.76 GPUs are expected: 5.39 pods of each class. 8 devices: all whole pods, and 2.61 shares.
    admission = TraceAdmission(nodes, classes)
    nothing = np.zeros(2, dtype=np.int64)
    assert [admission.admits(whole, nothing) for _ in range(5)] == [True] * 5
    assert sum(admission.admits(share, nothing) for _ in range(50)) == int(0.5 + 50 * 2.608 / 5.392)
    # So much has been requested by now that a new plan refuses nothing.
    for _ in range(EVERY - 55):
        admission.admits(whole, nothing)
    assert all(admission.admits(share, nothing) for _ in range(20))


def test_repacking_keeps_the_pods_that_came_first(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn-0,800000,999999,2,G2\n"
    )
    (tmp_path / "openb_pod_list_two.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1,1,810,\nb,1000,1,1,1000,\n"
    )
    nodes = trace.read_nodes(tmp_path)
    classes, _ = trace.read_pods(tmp_path, "two", nodes.models)
    share, whole = np.argsort(classes.milli).tolist()
    # A block is chosen from freely; what an earlier block admitted stays, whatever comes later.
    assert repacked(nodes, classes, np.array([share] * 50 + [whole] * 50)) == pytest.approx(2000)
    assert repacked(nodes, classes, np.array([share] * 100 + [whole] * 100)) == pytest.approx(1620)


def test_fragment_of_a_node_by_hand(setting: tuple[trace.Nodes, trace.Classes, trace.Ints]) -> None:
    nodes, classes, _ = setting
    fragments = Fragments(TraceCluster(nodes, classes))
    left = np.zeros((1, 8), dtype=np.int64)
    left[0, :2] = [500, 1000]
    # 810 fits device 1, the 500 is fragment; 1000 on G2 fits device 1 likewise; 470 and 160 fit both.
    amount = fragments.amount(left, np.array([96_000]), np.array([nodes.models.index("G2")]))
    expected = sum(
        w * (500 if fragments.levels[fragments.level_of[i]] in (810, 1000) else 0)
        if fragments.gpus[i] == 1
        else w * 1500
        for i, w in enumerate(fragments.weight)
    )
    assert amount[0] == pytest.approx(expected)


def test_best_fit_takes_the_tightest_device(
    setting: tuple[trace.Nodes, trace.Classes, trace.Ints],
) -> None:
    nodes, classes, _ = setting
    cluster = TraceCluster(nodes, classes)
    share = int(np.flatnonzero(classes.milli == 470)[0])
    cluster.place(0, share, 0, (3,))
    assert cluster.tightest(share, 0) == (3,)
    assert BestFit(cluster).choose(share) is not None


def test_candidates_skip_equal_devices() -> None:
    row, device, after = candidates(np.array([[1000, 1000, 500, 0]]), 1, 470)
    assert row.tolist() == [0, 0]
    assert device.tolist() == [0, 2]
    assert after.tolist() == [[530, 1000, 500, 0], [1000, 1000, 30, 0]]
    _, _, whole = candidates(np.array([[1000, 500, 1000, 1000]]), 2, 1000)
    assert whole.tolist() == [[0, 500, 0, 1000]]


def test_moves_free_capacity_and_are_counted(tmp_path: Path) -> None:
    head = "sn,cpu_milli,memory_mib,gpu,model\n"
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        head + "n-0,96000,262144,1,G2\nn-1,96000,262144,1,G2\n"
    )
    (tmp_path / "openb_pod_list_tiny.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1,1,400,\nb,1000,1,1,1000,\n"
    )
    nodes = trace.read_nodes(tmp_path)
    classes, _ = trace.read_pods(tmp_path, "tiny", nodes.models)
    cluster = TraceCluster(nodes, classes)
    migration = MigratingPolicy(cluster, BestFit(cluster))
    migration._start(0, 0, 0, (0,))  # noqa: SLF001
    migration._start(1, 0, 1, (0,))  # noqa: SLF001
    assert not migration.arrive(2, 1), "one percent of two pods is none"
    migration._budget = 1  # noqa: SLF001
    assert migration.arrive(3, 1)
    assert migration.moves == 1
    assert cluster.legal()
    assert cluster.used == 1800


def test_budget_holds_over_a_run(setting: tuple[trace.Nodes, trace.Classes, trace.Ints]) -> None:
    nodes, classes, of_pods = setting
    sequence = trace.arrivals(classes, of_pods, nodes, 11)
    _, migration = simulate(nodes, classes, sequence, "kai_cp prices, moves")
    assert migration is not None
    assert migration.worst <= 100 * SHARE
