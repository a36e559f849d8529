"""VolumeBinding: finds the nodes that reach a pod's volumes, and has the missing ones bound or made where the pod goes."""
