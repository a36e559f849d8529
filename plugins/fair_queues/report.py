"""How each queue stands, for people: what it has, what fairness gives it, who waits, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from plugins.fair_queues.ledger import Ledger
    from plugins.fair_queues.queues import Fault
    from scheduler.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QueueReport:
    """How one queue stands, those below it included; amounts are milliCPU, bytes or counts by resource, without zeros.

    Attributes:
        fault: what is wrong with it, if anything is.
        used: what its pods take, from when a node was chosen for them.
        fair_share: what fairness gives it now.
        used_share: the greatest part of the cluster that it has of any resource, in [0, 1].
        fair_part: likewise of what fairness gives it.
        pending: how many pods wait.
        longest_wait_seconds: for how long the first of them has, those left out that no node could run.
    """

    fault: Fault | None = None
    used: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    used_share: float = 0.0
    fair_part: float = 0.0
    pending: int = 0
    longest_wait_seconds: float = 0.0


def report(ledger: Ledger, snapshot: Snapshot, now: float) -> Generator[None, None, dict[str, QueueReport]]:
    """Return how queues stand, by name, one queue a step; `now` is by the monotonic clock."""
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
