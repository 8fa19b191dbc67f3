"""Queries about a snapshot, besides its plan (``engine.decide``) and the faults of a plan (``violations``).

``reading``: what rules add when it is read. ``cluster``: its hardware, its plan without a solver, all faults
of a plan. ``shares``: fair order, fair shares, what pods are worth. ``times``: ends, reservations, bounds on
waiting. ``why``: what keeps a pod group waiting, and what could help. ``moves``: what moving pods would free.
``goals``: what a plan is worth, whichever scheduler made it.
The modules below (ledger, actions, rules and models) may change at any time. The solver is imported only by
the queries that need it: a process that only reads a snapshot loads no solver.
"""
