"""The parts that all kinds share: registration, strategies, metadata, selectors, structure, errors, and tables.

The names are Kubernetes'. Rules of one kind belong into `kinds`.
"""
