"""Patches: JSON patches, strategic merge, and server-side apply with its managedFields."""
