"""The stand-in for every node's kubelet: admits pods, says that they run, and ends them."""
