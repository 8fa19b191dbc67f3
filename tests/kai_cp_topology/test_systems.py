"""Known systems: which entry a product label selects, and the islands that follow."""

from __future__ import annotations

import pytest

from kai_cp_topology.fabric import gpu_graph
from kai_cp_topology.islands import islands, pick
from kai_cp_topology.records import NodeFacts
from kai_cp_topology.systems import system_of, systems
from tests.kai_cp_topology.build import node, worst_pair

ALL_8 = ((0, 1, 2, 3, 4, 5, 6, 7),)
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
FOURS = ((0, 1, 2, 3), (4, 5, 6, 7))
SINGLE = tuple((i,) for i in range(8))

# Product label, GPUs of the node, system, islands, worst pair over all GPUs of the node [GB/s].
PRODUCTS = [
    ("NVIDIA-A100-SXM4-80GB", 8, "HGX A100", ALL_8, 600),
    ("A100-SXM4-40GB", 8, "HGX A100", ALL_8, 600),
    ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 8, "HGX A100", ALL_8, 600),
    ("NVIDIA-H100-80GB-HBM3", 8, "HGX H100", ALL_8, 900),
    ("NVIDIA-H100-80GB-HBM3-SHARED", 8, "HGX H100", ALL_8, 900),
    ("NVIDIA-H100-80GB-HBM3", 4, "HGX H100", ((0, 1, 2, 3),), 900),
    ("NVIDIA-H200", 8, "HGX H200", ALL_8, 900),
    ("NVIDIA-B200", 8, "HGX B200", ALL_8, 1800),
    ("NVIDIA-B300-SXM6-AC", 8, "HGX B300", ALL_8, 1800),
    ("NVIDIA-GB200", 4, "GB200 NVL72", ((0, 1, 2, 3),), 1800),
    ("NVIDIA-GB300", 4, "GB300 NVL72", ((0, 1, 2, 3),), 1800),
    ("NVIDIA-H100-NVL", 8, "H100 NVL pair", PAIRS, 128),
    ("NVIDIA-H100-PCIe", 8, "H100 PCIe pair", PAIRS, 128),
    ("NVIDIA-A100-PCIE-40GB", 8, "A100 PCIe pair", PAIRS, 64),
    ("NVIDIA-A100-80GB-PCIe", 8, "A100 PCIe pair", PAIRS, 64),
    ("NVIDIA-H200-NVL", 8, "H200 NVL, bridged by four", FOURS, 128),
    ("NVIDIA-L40S", 8, "PCIe or unknown", SINGLE, 64),
    ("", 8, "PCIe or unknown", SINGLE, 64),
]


@pytest.mark.parametrize(("product", "gpus", "name", "groups", "worst"), PRODUCTS, ids=lambda v: str(v)[:24])
def test_product(product: str, gpus: int, name: str, groups: tuple[tuple[int, ...], ...], worst: int) -> None:
    where = node("n", gpus, product=product)
    graph = gpu_graph(where)
    assert system_of(where).name == name
    assert islands(graph) == groups
    assert worst_pair(graph, range(gpus)) == worst


def test_the_table_makes_sense() -> None:
    names = [system.name for system in systems()]
    assert len(set(names)) == len(names)
    assert systems()[-1].products == ("*",)
    for system in systems():
        assert 1 <= system.island <= system.gpus
        assert system.domain % system.island == 0
        assert (system.nvlink > system.pcie) == (system.island > 1)
        assert system.pcie >= system.network > 0


def test_attributes_stand_in_for_missing_labels() -> None:
    attributes = {"productName": "NVIDIA GB200", "clusterUUID": "c0ffee", "cliqueID": "7"}
    facts = NodeFacts("n", {}, 4, 4, attributes)
    assert system_of(facts).name == "GB200 NVL72"
    assert facts.clique == "c0ffee.7"
    assert NodeFacts("n", {"nvidia.com/gpu.clique": "label.1"}, 4, 4, attributes).clique == "label.1"


PICKS = [
    ("one island holds both", range(8), 2, (0, 1)),
    ("a single GPU comes from a split pair", [0, 1, 2], 1, (2,)),
    ("a whole pair for two", [0, 2, 3], 2, (2, 3)),
    ("no pair left: the best of the rest", [0, 2, 4], 2, (0, 2)),
    ("three take a whole pair first", [0, 2, 3, 6], 3, (0, 2, 3)),
    ("not enough", [0, 1], 3, ()),
    ("none asked for", [0, 1], 0, ()),
]


@pytest.mark.parametrize(("free", "count", "chosen"), [p[1:] for p in PICKS], ids=[p[0] for p in PICKS])
def test_pick_on_pairs(free: list[int], count: int, chosen: tuple[int, ...]) -> None:
    graph = gpu_graph(node("n", 8, product="NVIDIA-H100-NVL"))
    assert pick(graph, free, count) == chosen


def test_one_gpu_has_no_pair() -> None:
    assert worst_pair(gpu_graph(node("n")), [3]) is None
    assert islands(gpu_graph(node("n", 0))) == ()
