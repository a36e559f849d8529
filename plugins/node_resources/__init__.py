"""NodeResourcesFit and NodeResourcesBalancedAllocation, and the arithmetic of how full nodes are that both share."""
