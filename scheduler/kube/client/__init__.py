"""Client of the API server: list-and-watch, stores, writes and events.

`http/` transfers bytes over connections that are reused. The modules above it work with typed structs.
"""
