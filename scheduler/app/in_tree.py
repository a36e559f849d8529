"""The plugins that come with the scheduler, for the layers above that build profiles but no daemon."""

from plugins.registry import IN_TREE

__all__ = ["IN_TREE"]
