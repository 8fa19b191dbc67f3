"""Topology domains: which exist, their free capacity, and how close places are to each other (8)."""
