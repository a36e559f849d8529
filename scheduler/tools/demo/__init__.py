"""The demo: the daemon on a simulated cluster, over real HTTP, as an introduction."""
