"""What-if questions: the daemon's own objects, on the state of a cluster that was read from a file or an API server."""
