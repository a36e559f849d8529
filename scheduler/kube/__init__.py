"""The connection to the API server: client, login, lease and certificates."""
