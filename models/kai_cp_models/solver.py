"""CP-SAT, imported when the first model is built.

Its Python interface imports pandas for the series of variables that nothing here uses: half of the time that
the engine takes to import. Many a snapshot is decided and proved without a model, and need not wait for it.
A process that lives long calls ``load`` at its start instead.
"""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

_NAME: Final = "ortools.sat.python.cp_model"


def _imported_when_used(name: str) -> ModuleType:
    """The module, which is run when something in it is first asked for."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name}", name=name)
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from ortools.sat.python import cp_model as cp_model
else:
    cp_model = _imported_when_used(_NAME)


def load() -> None:
    """Import it now."""
    cp_model.CpModel  # noqa: B018  # To ask for anything in it runs it.
