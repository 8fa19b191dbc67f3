"""Importing this loads CP-SAT and SCIP: for the server that forks the workers of a long-lived program."""

from ortools.math_opt import model_pb2 as model_pb2  # type: ignore[import-untyped]
from ortools.math_opt.python import mathopt as mathopt  # type: ignore[import-untyped]

from kai_cp_models.solver import load

load()
