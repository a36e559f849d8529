"""Finds, builds and calls plugins, and converts their exceptions into statuses."""
