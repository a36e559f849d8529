"""What the scheduler believes of the cluster: nodes, and the pods that are on them or soon will be."""
