"""Replays a recording: the daemon's own code, with the same input in the same order, decides again."""
