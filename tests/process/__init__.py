"""Several daemons as processes, an API server as another, and faults between them: real time, signals, sockets."""
