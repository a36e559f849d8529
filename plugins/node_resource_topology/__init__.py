"""NodeResourceTopologyMatch: places pods where one NUMA zone of the node holds their containers."""
