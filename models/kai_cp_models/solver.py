"""CP-SAT, imported when the first model is built, and without pandas.

Its Python interface imports pandas for series of variables, which nothing here uses: it would take three
quarters of the time of loading. Many snapshots are decided and proved without a model, and need not wait for
it. A long-lived process calls ``load`` at its start instead.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

logger = logging.getLogger(__name__)

_NAME: Final = "ortools.sat.python.cp_model"
_UNUSED: Final = "pandas"
_WORK_DIGITS: Final = 9
_STOP_SECONDS: Final = 0.05
"""A search that is about to begin is stopped again after this time."""


class _WithoutPandas(Loader):
    """Runs the module as ``loader`` does, with empty classes for those of pandas that it names."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        with _stand_in():
            self._loader.exec_module(module)


@contextmanager
def _stand_in() -> Iterator[None]:
    """Until then an import of pandas gives a stand-in, afterwards the real package; a pandas that is already
    imported stays."""
    if _UNUSED in sys.modules:
        yield
        return
    found = ModuleType(_UNUSED)
    vars(found).update({name: type(name, (), {}) for name in ("Index", "Series")})
    sys.modules[_UNUSED] = found
    try:
        yield
    finally:
        del sys.modules[_UNUSED]


def _imported_when_used(name: str) -> ModuleType:
    """The module, which is run when something in it is first asked for."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name}", name=name)
    spec.loader = LazyLoader(_WithoutPandas(spec.loader))
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


def run(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    callback: cp_model.CpSolverSolutionCallback | None = None,
) -> cp_model.CpSolverStatus:
    """Solve the model; Ctrl-C ends the search and is raised, as in other code. A model that CP-SAT finds
    invalid is a defect; it has no answer, and the log says why.

    CP-SAT's own handler would end the search as the end of its time does, and leave none behind.
    """
    status = _solved(solver, model, callback)
    if status == cp_model.MODEL_INVALID:
        logger.error("a model is invalid, report this defect: %s", model.validate())
    return status


def work_of(solver: cp_model.CpSolver) -> float:
    """Deterministic time of the last solve. CP-SAT adds it up in no fixed order, so its last bits differ from
    run to run; they are left out, as limits of work must not depend on them."""
    return round(solver.response_proto.deterministic_time, _WORK_DIGITS)


def _solved(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    callback: cp_model.CpSolverSolutionCallback | None,
) -> cp_model.CpSolverStatus:
    solver.parameters.catch_sigint_signal = False
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return solver.solve(model, callback)
    pressed: KeyboardInterrupt | None = None
    with ThreadPoolExecutor(1) as pool:  # Python sees no signal while its main thread is inside CP-SAT.
        search = pool.submit(solver.solve, model, callback)
        while not search.done():
            try:
                if pressed:
                    solver.stop_search()
                wait((search,), _STOP_SECONDS if pressed else None)
            except KeyboardInterrupt as again:  # Who presses it twice does not leave the search behind.
                pressed = again
    if pressed:
        raise pressed
    return search.result()
