"""Watches by kopf, in a thread of its own; its failure affects only the objects it watches."""
