"""The problem of scheduling: what a plan may do, what a better plan is, and how one is found.

``PUBLIC`` names the modules for other packages, the benchmarks and what tests share; all others are internal
and may change at any time. An import contract and ``tests/conventions/test_surface.py`` hold it.

- Records, frozen: ``snapshot`` with its ``pods``, ``policy`` and ``extras``, ``plan``, ``records`` of API
  objects, ``settings``, ``reasons``; and the words they are written in: ``quantity``, ``selectors``,
  ``migs``, ``arrays``, ``shown`` for messages.
- Questions: ``engine`` (a plan), ``check`` (the faults of one), ``queries`` (all else), ``turns`` (which
  pod groups a cycle looks at), ``bounds`` (what no placement could exceed; for benchmarks alone).
- ``collection``: how a process that reads and decides snapshots collects garbage.
"""

from typing import Final

PUBLIC: Final = (
    "arrays",
    "bounds",
    "check",
    "collection",
    "engine",
    "extras",
    "migs",
    "plan",
    "pods",
    "policy",
    "quantity",
    "queries",
    "reasons",
    "records",
    "selectors",
    "settings",
    "shown",
    "snapshot",
    "turns",
)
