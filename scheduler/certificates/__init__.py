"""Certificates: made on the spot, or given."""
