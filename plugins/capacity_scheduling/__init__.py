"""CapacityScheduling: namespaces share a cluster by quotas, borrow what others do not use, and take back their min."""
