"""Compares the daemon's cache and queue with the API server, and derived data with their sources."""
