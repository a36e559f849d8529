"""InterPodAffinity: `plugin` is the plugin; the other modules count pods and terms."""
