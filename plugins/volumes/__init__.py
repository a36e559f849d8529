"""Pods and their volumes: what the plugins of volumes share, and those plugins."""
