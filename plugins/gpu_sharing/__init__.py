"""Shares of GPUs: which GPU of a node a pod gets, and which node wastes the least of them."""
