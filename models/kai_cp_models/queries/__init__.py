"""What may be asked of a snapshot beside its plan (``engine.decide``) and the faults of one (``violations``).

``reading``: what rules add when it is read. ``cluster``: its hardware, its plan without a solver, all faults
of a plan. ``shares``: fair order, fair shares, what pods are worth. ``times``: ends, reservations, bounds on
waiting. ``why``: what keeps a pod group waiting, and what could help. ``moves``: what moving pods would free.
What lies below, the ledger, the actions, the rules and the models, may change at any time.

What solves is imported where it is asked for: a process that only looks at a snapshot loads no solver.
"""
