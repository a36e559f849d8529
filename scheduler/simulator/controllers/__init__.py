"""Stand-ins for kube-controller-manager's controllers, one file each: they watch the store and act."""
