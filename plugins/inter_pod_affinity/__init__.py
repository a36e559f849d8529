"""InterPodAffinity: `plugin` is the plugin; the other modules count the terms of a pending pod, and explain verdicts."""
