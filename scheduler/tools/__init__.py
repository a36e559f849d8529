"""Tools beside the daemon: what-if commands, the board, the simulated API server and the demo."""
