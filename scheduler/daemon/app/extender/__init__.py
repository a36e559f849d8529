"""The plugins as the HTTP extender of another scheduler: the daemon without queue, scheduling loop and lease."""
