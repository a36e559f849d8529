"""The scheduler's state of the cluster: nodes, and the pods that are on them or assumed to be."""
