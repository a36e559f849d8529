"""The division of nodes and pods among replicas that place pods at the same time, without I/O."""
