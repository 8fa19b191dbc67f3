"""Topology domains: which there are, their room, and how close places are to each other (8)."""
