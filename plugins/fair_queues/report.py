"""The report of each queue: what it uses, its fair share, its pending pods, and its fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from plugins.fair_queues.ledger import Ledger
    from scheduler.errors import FieldError
    from scheduler.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report of one queue, including those below it; amounts are milliCPU, bytes or counts by resource, without zeros.

    Attributes:
        fault: its fault, if any.
        used: what its pods use, from the choice of their node.
        fair_share: its current fair share.
        used_share: the greatest fraction of the cluster that it uses, over all resources, in [0, 1].
        fair_part: the same of its fair share.
        pending: the number of its pending pods.
        longest_wait_seconds: how long the first of them has waited, without pods that no node could run.
    """

    fault: FieldError | None = None
    used: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    used_share: float = 0.0
    fair_part: float = 0.0
    pending: int = 0
    longest_wait_seconds: float = 0.0


def report(ledger: Ledger, snapshot: Snapshot, now: float) -> Generator[None, None, dict[str, QueueReport]]:
    """Return the reports by name, one queue a step; `now` is by the monotonic clock."""
    standing, wrong = ledger.standing(snapshot), ledger.wrong
    tree, pending = standing.tree, ledger.pending
    waiting, since = [0] * len(tree), [now] * len(tree)
    for leaf, pods in list(pending.by_queue.items()):
        for place in tree.paths.get(leaf, ()):
            waiting[place] += len(pods)
            since[place] = min(since[place], pending.waits_since.get(leaf, now))
    found = {name: QueueReport(fault) for name, fault in wrong.items()}
    for place, queue in enumerate(tree.queues):
        yield
        used, fair = standing.used[place], standing.deserved[place]
        found[queue.name] = QueueReport(
            wrong.get(queue.name),
            {name: int(used[column]) for name, column in standing.resources.items() if used[column]},
            {name: int(fair[column]) for name, column in standing.resources.items() if fair[column]},
            standing.share(used),
            standing.share(fair),
            waiting[place],
            now - since[place],
        )
    return found
