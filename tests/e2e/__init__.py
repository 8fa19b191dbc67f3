"""End to end on a real kube-apiserver with fake nodes."""
