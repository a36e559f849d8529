"""Handling of HTTP requests: parsing, bodies, lists, watches, discovery, and encoding of objects."""
