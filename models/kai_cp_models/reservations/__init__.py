"""The time axis: run times, starts in the future, backfill, aging.

Everything here is off by default; switched off, no annotation is read and no decision differs. ``prepare``
makes of a snapshot what the settings ask for; ``walk`` is allocate with a time axis; ``held`` keeps what is
reserved from every other placement of the cycle.
"""
