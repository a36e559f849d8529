"""The plugins of the resources of nodes, and the allocation that they score."""
