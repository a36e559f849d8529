"""The plugins of volumes, and what they share."""
