"""The modules that the server imports before it forks workers (see ``kai_cp.worker``); importing this module
loads them.

Modules are not garbage, so the garbage collector waits until they are loaded and ignores them afterwards. It
would otherwise look through them again and again, and forked workers would no longer share their memory.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

MODULES: Final = ("kai_cp.reader.snapshot", "kai_cp.solving", "kai_cp_models.engine")

gc.disable()
for _module in MODULES:
    import_module(_module)
gc.freeze()
gc.enable()
