"""`custom-scheduler tune`: searches the weights and arguments of a profile that serve a workload best."""
