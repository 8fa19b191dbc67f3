"""``kai-cp admission``: the webhook server around the pure functions of :mod:`kai_cp.admission`."""
