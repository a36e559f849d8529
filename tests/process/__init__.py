"""Several daemons as processes, an API server as another, and what goes wrong between them: real time, signals, sockets."""
