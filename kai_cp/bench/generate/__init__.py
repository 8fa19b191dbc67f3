"""Seeded raw snapshots of clusters from 100 to 10,000 nodes, in the style of the recorded ones."""

from kai_cp.bench.generate.objects import NOW
from kai_cp.bench.generate.shapes import SHAPES

__all__ = ["NOW", "SHAPES"]
