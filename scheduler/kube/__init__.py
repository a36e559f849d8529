"""The connection to the API server: its client, HTTP, TLS and certificates."""
