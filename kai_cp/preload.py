"""What the server imports from which workers are forked (see ``kai_cp.worker``); importing this does it.

Modules are not garbage: the collector, which would look through them again and again, waits until they are
there, and leaves them alone afterwards. So forked workers also go on sharing their memory.
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
