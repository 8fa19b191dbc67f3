"""Importing this loads CP-SAT and SCIP: for the server that forks the workers of a long-lived program."""

from kai_cp_models.joint.packing import load_scip
from kai_cp_models.solver import load

load()
load_scip()
