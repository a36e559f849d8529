"""Runs plugins: finds them, builds them, asks them in order, and turns their exceptions into statuses."""
