"""The board: a page that shows the cluster, what waits and why, and decisions as they happen.

Everything is read from what the scheduler keeps anyway, and only while somebody looks.
"""
