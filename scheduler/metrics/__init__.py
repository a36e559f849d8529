"""What Prometheus reads: kube-scheduler's own metrics, same names, labels and buckets, and a few of ours."""

from scheduler.metrics.metrics import Metrics

__all__ = ["Metrics"]
