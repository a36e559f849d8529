"""InterPodAffinity: `plugin` is the plugin; what it counts, and for whom, is beside it."""
