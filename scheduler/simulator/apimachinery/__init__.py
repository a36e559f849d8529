"""What all kinds have in common: names and strategies of kinds, metadata, selectors, structure, refusals, and tables.

It is called as Kubernetes calls it. A rule of one kind belongs into `kinds`.
"""
