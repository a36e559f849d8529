"""The HTTP/1.1 server of the daemon and of the simulated API server."""
