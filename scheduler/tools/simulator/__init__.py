"""A Kubernetes API server in memory, over real HTTP, with simulated controllers and kubelets.

It behaves like kube-apiserver 1.36, as far as a scheduler, kubectl and kubernetes_asyncio can observe.
"""
