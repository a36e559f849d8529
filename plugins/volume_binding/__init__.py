"""VolumeBinding: finds the nodes that reach a pod's volumes, and binds or provisions missing volumes for the chosen node."""
