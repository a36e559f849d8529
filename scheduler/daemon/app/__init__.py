"""Builds the daemon from its parts; the only package that knows the in-tree plugins."""
