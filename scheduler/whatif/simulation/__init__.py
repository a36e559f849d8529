"""What a configuration would do with a workload: pods come and go in virtual time, placed by the daemon's own plugins."""
