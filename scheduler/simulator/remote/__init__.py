"""Kubelets for an API server: they run as they do on a store, over requests and watches."""
