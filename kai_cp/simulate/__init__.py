"""Discrete-event simulation: pod groups arrive, run and end on the in-memory cluster, cycle by cycle."""
