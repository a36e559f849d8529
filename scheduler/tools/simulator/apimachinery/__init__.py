"""The parts that all kinds share: registration, strategies, metadata, selectors, structure, patches and errors.

The names are Kubernetes'. Rules of one kind belong into `kinds`.
"""
