"""Profiles that are objects of the cluster: which of them are in force, beside those of the configuration, and why."""
