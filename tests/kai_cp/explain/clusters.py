"""Small clusters in which a pod group ``default/x`` waits, as raw snapshots."""

from __future__ import annotations

from functools import partial

from tests.support import objects as raw
from tests.support import tiny

NOW = raw.NOW.timestamp()

cluster = partial(
    tiny.cluster, actions="allocate, reclaim, preempt", params={"allowConsolidatingReclaim": False}
)
"""A raw snapshot; every pod is a pod group of its own unless it names one, older ones first."""
