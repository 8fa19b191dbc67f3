"""The time axis: run times, starts in the future, backfill and aging.

Everything here is off by default. While it is off, no annotation is read and no decision differs. ``prepare``
adapts a snapshot to the settings, ``walk`` is allocate with a time axis, and ``held`` keeps reserved capacity
from every other placement of the cycle.
"""
