"""FairQueues: a tree of queues that share a cluster by weight."""
