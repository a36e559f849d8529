"""The board: a page that shows the cluster, its pending pods with reasons, and decisions as they happen.

It shows only data that the scheduler keeps anyway, and computes nothing while no client is connected.
"""
