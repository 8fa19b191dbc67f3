"""Node rules, each stated for the engine here and for the checker in ``check``.

``static`` depends on one pod and one node alone, ``stateful`` on who else is there.
"""
