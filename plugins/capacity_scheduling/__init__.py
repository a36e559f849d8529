"""CapacityScheduling: namespaces share a cluster by quotas, borrow what others leave, and get back what is theirs."""
