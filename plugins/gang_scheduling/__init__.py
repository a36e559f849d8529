"""Pods that are scheduled as a group: at least the minimum number of pods, or none."""
