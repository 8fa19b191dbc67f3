"""Node rules, each stated for the engine here and for the checker in ``check``.

A ``static`` rule depends on one pod and one node alone; a ``stateful`` rule also depends on which other pods
are there.
"""
