"""Simulated controllers of kube-controller-manager, one file each: they watch the store and act."""
