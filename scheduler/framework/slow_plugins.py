"""For plugins that look at nodes one by one, may be too slow to look at all of them, and have a time limit of their own."""

from __future__ import annotations

from scheduler.framework.interface import Plugin


class TimeLimitError(Exception):
    """A plugin's code was stopped by the plugin itself, because it took longer than the plugin's own time limit."""


class SlowPlugin(Plugin):
    """A plugin that may be content with some of the nodes.

    With a sample its `filter_node` is asked after the other plugins' filters, until so many nodes have passed; the
    nodes that are left are refused for this attempt. Its `score_node` is asked about so many of the feasible nodes; the
    others have the lowest score among those. The next pod's sample begins where this one ended, so that all nodes have
    their turn.

    Attributes:
        sample: how many nodes are enough; None is all.
        sample_start: the row where the next sample begins.
    """

    sample: int | None = None
    sample_start: int = 0
