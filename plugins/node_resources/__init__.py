"""NodeResourcesFit and NodeResourcesBalancedAllocation, and the computation of utilization that both share."""
