"""The daemon's HTTP server."""

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
"""The default paths that every client may read."""
