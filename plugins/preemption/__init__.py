"""DefaultPreemption: which victims have to leave so that a pod fits, and which candidate node is best."""
