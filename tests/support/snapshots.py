"""The snapshots that plugin authors have too, by the name the repository's own tests know."""

from scheduler.testing.builders import cache_of, snapshot_of

__all__ = ["cache_of", "snapshot_of"]
