"""The report as people and programs read it."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree

from kai_cp_topology.draw import picture
from kai_cp_topology.report import Report, to_json, to_text
from tests.kai_cp_topology.build import node, racks


def gb200() -> Report:
    nodes = [*racks(2, 18, free=1), node("spare", 8)]
    del nodes[0]
    return Report.of(nodes, {"dc": ("block", "rack")})


def test_text() -> None:
    report = Report.of([*racks(3, 18, free=1), node("spare", 8)][1:], {"dc": ("block", "rack")})
    assert (
        to_text(report)
        == """\
levels: block > rack > nvidia.com/gpu.clique
dc                                    ████████░░      53 free of 212     53 nodes
└─ block b0                           ████████░░      53 free of 212     53 nodes
   ├─ rack r00 = gpu.clique fabric.0  ████████░░      17 free of 68      17 nodes, 4 of 72 GPUs missing
   ├─ rack r01 = gpu.clique fabric.1  ████████░░      18 free of 72      18 nodes
   └─ rack r02 = gpu.clique fabric.2  ████████░░      18 free of 72      18 nodes
outside: 1 node without all level labels (spare)

largest gang that fits in  hops  1 GPU/pod      2 GPUs/pod  4 GPUs/pod
one node                   0     1              none        none
one gpu.clique             2     18 (fabric.1)  none        none
one rack                   2     18 (r01)       none        none
one block                  4     53 (b0)        none        none
all of dc                  4     53             none        none

GB200 NVL72: 53 nodes, 212 GPUs; NVLink 1,800 GB/s in domains of 72, network 100 GB/s
HGX H100: 1 node, 8 GPUs; NVLink 900 GB/s in islands of 8, network 100 GB/s
"""
    )


def test_small_clusters_list_their_nodes() -> None:
    report = Report.of([node("a", 8, 0), node("b", 8, 8), node("c", 0)], {})
    assert (
        to_text(report)
        == """\
cluster  █████░░░░░       8 free of 16      3 nodes
├─ a     ██████████       0 free of 8
├─ b     ░░░░░░░░░░       8 free of 8
└─ c                               no GPUs

largest gang that fits in  hops  1 GPU/pod  2 GPUs/pod  4 GPUs/pod  8 GPUs/pod
one node                   0     8          4           2           1
all of cluster             2     8          4           2           1

HGX H100: 2 nodes, 16 GPUs; NVLink 900 GB/s in islands of 8, network 100 GB/s
"""
    )


def test_a_level_of_hostnames_is_shown_as_nodes() -> None:
    labels = ("rack", "kubernetes.io/hostname")
    nodes = [node(f"n{i}", 4, i, rack=f"r{i // 2}", **{"kubernetes.io/hostname": f"h{i}"}) for i in range(4)]
    assert to_text(Report.of(nodes, {"dc": labels})).startswith("""\
levels: rack > kubernetes.io/hostname
dc          ███████░░░       6 free of 16      4 nodes
├─ rack r0  █████████░       1 free of 8       2 nodes
│  ├─ n0    ██████████       0 free of 4
│  └─ n1    ████████░░       1 free of 4
└─ rack r1  ████░░░░░░       5 free of 8       2 nodes
   ├─ n2    █████░░░░░       2 free of 4
   └─ n3    ███░░░░░░░       3 free of 4

largest gang that fits in  hops  1 GPU/pod  2 GPUs/pod  4 GPUs/pod
one node                   0     3          1           none
one rack                   2     5 (r1)     2 (r1)      none
all of dc                  4     6          2           none
""")


def test_a_bar_is_empty_or_full_only_when_the_domain_is() -> None:
    text = to_text(Report.of([node("a", 100, 99), node("b", 100, 1)], {}))
    assert "a     █░░░░░░░░░      99 free of 100" in text
    assert "b     █████████░       1 free of 100" in text


def test_json_carries_every_domain() -> None:
    found = json.loads(json.dumps(to_json(gb200())))
    (tree,) = found["topologies"]
    assert [domain["path"] for domain in tree["domains"]][:3] == [[], ["b0"], ["b0", "r00"]]
    assert tree["outside"] == ["spare"]
    largest = {"level": "rack", "podGpus": 1, "pods": 18, "domain": ["b0", "r01"], "hops": 2}
    assert largest in tree["largestGangs"]
    assert [system["name"] for system in found["systems"]] == ["GB200 NVL72", "HGX H100"]


def test_pictures_are_files_of_their_format_and_repeat() -> None:
    report = gb200()
    assert picture(report, "png").startswith(b"\x89PNG")
    drawing = picture(report, "svg")
    assert drawing == picture(report, "svg")
    assert ElementTree.fromstring(drawing).tag.endswith("svg")


def test_a_name_is_no_formula() -> None:
    drawn = picture(Report.of([], {"$\\frac{$": ("rack",)}), "svg")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_an_empty_cluster() -> None:
    report = Report.of([], {"dc": ("rack",)})
    assert "0 nodes" in to_text(report)
    assert picture(report, "svg")


def test_a_large_flat_cluster_folds() -> None:
    report = Report.of([node(f"n{i:04d}") for i in range(1000)], {})
    size = ElementTree.fromstring(picture(report, "svg")).get("height", "")
    # 1,000 rows of 0.12 inches would be 8640 points.
    assert float(size.removesuffix("pt")) < 1500


def test_matplotlib_is_imported_only_for_pictures() -> None:
    code = "import sys, kai_cp_topology.draw; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_tree_fits_a_terminal_and_is_whole_in_a_pipe() -> None:
    names = [f"ip-10-253-117-20{i}.eu-central-1.compute.internal-gpu-pool-h100-{i}" for i in range(2)]
    report = Report.of([node(name, 8, 4, rack="a") for name in names], {"dc": ("rack",)})
    lines = to_text(report, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len({line.index("█") for line in lines if "█" in line}) == 1, "the bars are aligned"
    assert any("├─ ip-10" in line and "…" in line and "-h100-0  █" in line for line in lines)
    assert all(name in to_text(report) for name in names)


def test_the_common_end_of_node_names_is_said_once() -> None:
    ending = ".eu-central-1.compute.internal"
    report = Report.of([node(f"n{i}{ending}", 8, 4) for i in range(2)], {})
    said = to_text(report, 80, ending).splitlines()
    assert said[0] == f"nodes end in {ending}"
    assert [line.split()[1] for line in said if "─" in line] == ["n0", "n1"]
    assert to_text(report, 80).count(ending) == 2


def test_large_numbers_are_readable_and_fit_a_terminal() -> None:
    text = to_text(Report.of([node(f"n{i:05d}", 8) for i in range(1250)], {}), 80)
    assert "10,000 free of 10,000  1,250 nodes" in text
    assert max(map(len, text.splitlines())) <= 80


def test_places_with_long_names_stand_below_their_rows() -> None:
    labels = ("zone", "rack")
    nodes = [node(f"n{i}", 8, 8 - i, zone="europe-west-4", rack=f"europe-west-4-rack-{i}") for i in range(2)]
    lines = to_text(Report.of(nodes, {"dc": labels})).splitlines()
    table = lines[lines.index("") + 1 :]
    assert max(map(len, lines)) <= 80
    assert table[:7] == [
        "largest gang that fits in  hops  1 GPU/pod  2 GPUs/pod  4 GPUs/pod  8 GPUs/pod",
        "one node                   0     8          4           2           1",
        "one rack                   0     8          4           2           1",
        "  in europe-west-4-rack-0: 1, 2, 4, 8 GPUs/pod",
        "one zone                   2     15         7           3           1",
        "  in europe-west-4: 1, 2, 4, 8 GPUs/pod",
        "all of dc                  2     15         7           3           1",
    ]
