"""Our decisions beside a real kube-scheduler's: a mixed workload, and its driver."""
