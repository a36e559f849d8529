"""Everything that talks to the API server: list-and-watch, stores, writes, events.

`kubernetes_asyncio` carries configuration, authentication, TLS and the connection pool; bytes go straight
between its pool and our typed structs.
"""
