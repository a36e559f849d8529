"""Support for plugins that evaluate nodes one by one, on a sample of nodes or with a time limit of their own."""

from __future__ import annotations

from scheduler.framework.interface import Plugin


class TimeLimitError(Exception):
    """A plugin stopped its own code, because it exceeded the plugin's own time limit."""


class SlowPlugin(Plugin):
    """A plugin that may evaluate only a sample of the nodes.

    With a sample, its `filter_node` is called after the other plugins' filters, until the sample has enough
    passing nodes; the remaining nodes are rejected for this attempt. Its `score_node` is called for as many
    of the feasible nodes; the others get the lowest score of those. The next pod's sample begins where this
    one ended, so that all nodes are used in turn.

    Attributes:
        sample: number of nodes that are enough; None for all.
        sample_start: the row where the next sample begins.
    """

    sample: int | None = None
    sample_start: int = 0
