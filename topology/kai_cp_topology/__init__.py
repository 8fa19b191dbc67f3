"""The fabric: GPUs, islands, NVLink domains and racks, and how close a gang is."""
