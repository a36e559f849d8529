"""Simulated kubelets, and simulated drivers of volumes and devices, which are not part of Kubernetes itself."""
