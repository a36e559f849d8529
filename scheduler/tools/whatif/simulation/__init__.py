"""What a configuration would do with a workload: pods arrive and end in virtual time, and the daemon's plugins place them."""
