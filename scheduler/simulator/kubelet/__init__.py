"""Simulates the kubelet of every node: admits pods, reports them as running, and ends them."""
