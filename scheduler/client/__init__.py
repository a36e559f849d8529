"""Everything that talks to the API server: list-and-watch, stores, writes, events.

`http/` moves bytes, over connections that are kept; what is above it deals in our typed structs.
"""
