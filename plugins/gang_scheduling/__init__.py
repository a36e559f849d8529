"""Pods that are scheduled as a group: all that it takes at least, or none."""
