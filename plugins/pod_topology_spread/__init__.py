"""PodTopologySpread: `plugin` is the plugin; constraints, counting and ranking are beside it."""
