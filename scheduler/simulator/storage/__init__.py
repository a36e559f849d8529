"""Versioned objects of each kind: current state, history and watches."""
