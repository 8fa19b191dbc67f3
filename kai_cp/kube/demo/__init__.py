"""A real control plane on loopback with fake nodes, for ``kai-cp demo-cluster`` and the tests."""
