"""Our decisions beside a real kube-scheduler's: a workload of mixed kinds, and what drives it."""
