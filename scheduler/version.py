"""Which version this is: to ask what is installed takes longer than most of the start."""

VERSION = "0.1.0"
KUBERNETES = "1.36"
"""The Kubernetes whose kube-scheduler it does as."""
