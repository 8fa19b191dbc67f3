"""Importing this loads CP-SAT: for the server that forks the workers of a long-lived program."""

from kai_cp_models.solver import load

load()
