"""Shared GPUs: which GPUs of a node a pod gets, and which node wastes the least GPU capacity."""
