"""Tools beside the daemon: what-if commands, the board and the demo."""
