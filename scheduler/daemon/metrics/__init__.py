"""Prometheus metrics: those of kube-scheduler with the same names, labels and buckets, and some additional ones."""

from scheduler.daemon.metrics.metrics import Metrics

__all__ = ["Metrics"]
