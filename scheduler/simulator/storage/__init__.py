"""Versioned objects of each kind: what there is, what happened to it, and who watches."""
