"""The demo: the daemon at work on a simulated cluster, over real HTTP, for somebody who sees it the first time."""
