"""Certificates: generated at startup, or given by files."""
