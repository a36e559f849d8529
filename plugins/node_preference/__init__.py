"""NodePreference: ordered sets of nodes with limits of replicas."""
