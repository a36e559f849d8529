"""Simulated controllers of kube-controller-manager: they watch the store and act."""
