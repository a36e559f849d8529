"""Simulated drivers of storage and devices, which are not part of Kubernetes itself."""
