"""Our plugins as the HTTP extender of another scheduler: the daemon without a queue, a scheduling loop and a lease."""
