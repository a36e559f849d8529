"""PodTopologySpread: `plugin` is the plugin; the other modules read constraints, count pods and score nodes."""
