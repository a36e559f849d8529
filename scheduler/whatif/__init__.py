"""What would the scheduler do with this cluster: the daemon's own objects on state that was read from a file."""
