"""What the daemon answers over HTTP."""

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
"""The pages that everybody may read, unless others are named."""
