"""A Kubernetes API server in memory, over real HTTP, with stand-ins for the controllers a scheduler lives with.

It answers as kube-apiserver 1.36 does, as far as a scheduler, kubectl and kubernetes_asyncio can tell.
"""
