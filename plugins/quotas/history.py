"""The use of queues over time: an average with a half-life, and the weights that follow from it.

The average of a queue is that of its dominant share. A queue that used more than its weight's part of what it and its
siblings used has a smaller weight now, and one that used less has a larger weight. So the averages of queues that request
more than their share approach the parts that the weights give them. The averages are in the statuses of the queues, and a
new process continues with them.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plugins.quotas.queues import Queue, Tree
from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.framework import Clock
    from scheduler.snapshot import Int64s

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

AVERAGE: Final = "averageShare"
"""The field of a queue's status with its average, in percent."""
AVERAGE_TIME: Final = "averageShareTime"
"""The field with the time of the average."""

_DAY_NANOSECONDS: Final = 86_400 * 10**9
_LEAST_HALF_LIFE_SECONDS: Final = 60.0
_MOST_STRENGTH: Final = 10.0
_LEAST_WEIGHT: Final = 0.05
"""The part of its own weight that a queue keeps, whatever it used before."""
_STEPS: Final = 256
"""The number of times in a half-life that the averages are computed again."""
_LEAST_STEP_SECONDS: Final = 10.0
_CHANGE: Final = 0.0005
"""The change of an average up to which the last one is kept: so idle queues cause no writes."""


class HistoryArgs(PluginArgs, frozen=True, kw_only=True):
    """The effect of past use on the shares.

    Attributes:
        half_life: the time after which a use counts half.
        strength: how much weights change; 0 leaves them as they are.
    """

    half_life: Duration = Duration(_DAY_NANOSECONDS)
    strength: float = 1.0

    def faults(self) -> Iterator[FieldError]:
        if self.half_life.seconds < _LEAST_HALF_LIFE_SECONDS:
            yield FieldError("halfLife", f"at least 1m0s is expected, was {self.half_life}")
        if not 0 <= self.strength <= _MOST_STRENGTH:
            yield FieldError("strength", f"0 to {_MOST_STRENGTH:g} is expected, was {self.strength:g}")


def weights_after_use(weights: Floats, averages: Floats, part: float, strength: float) -> Floats:
    """Return the weights of siblings, changed by what they used before; their sum has no meaning.

    Args:
        weights: (n_queues,), above 0.
        averages: (n_queues,), their average dominant shares, in [0, 1].
        part: the fraction of the cluster that they share now, of the resource with the largest fraction.
        strength: as of `HistoryArgs`.

    Returns:
        (n_queues,), above 0; in proportion to `weights` if each queue used its part.
    """
    nominal = weights / weights.sum()
    behind = nominal * averages.sum() - averages
    changed: Floats = np.maximum(nominal + strength * behind / max(part, 1e-9), _LEAST_WEIGHT * nominal)
    return changed


class UsageHistory:
    """The averages of all queues.

    Args:
        args: how the past counts.
        clock: the time.

    Attributes:
        strength: as of `HistoryArgs`.
        version: changes when the averages that count change.
    """

    def __init__(self, args: HistoryArgs, clock: Clock) -> None:
        self._clock = clock
        self._half_life = args.half_life.seconds
        self._step = max(self._half_life / _STEPS, _LEAST_STEP_SECONDS)
        self.strength = args.strength
        self.version = 0
        self._tree = Tree()
        self._at = clock.monotonic()
        self._next = self._at
        none: Floats = np.zeros(0)
        self._averages, self._shares, self._counting, self._times = none, none, none, none

    def follow(
        self, tree: Tree, used: Int64s, whole: Int64s, objects: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Count what queues used since the last call, and note what they use from now on.

        Args:
            tree: the queues.
            used: (n_queues, n_resources), what their pods use.
            whole: (n_resources,), the sum of all nodes.
            objects: name -> the object of a queue; the average of a new queue is in its status.
        """
        now = self._clock.monotonic()
        if now > self._at:
            kept = self._kept(now - self._at)
            self._averages = self._averages * kept + self._shares * (1 - kept)
            self._at = now
        shares: Floats = (used / np.maximum(whole, 1)).max(axis=1, initial=0.0)
        if tree is not self._tree:
            self._replace(tree, shares, objects)
        self._shares = shares
        if now >= self._next:
            self._count(now)

    def averages_of(self, tree: Tree) -> Floats:
        """Return (n_queues,): the averages that count for the queues of a tree."""
        if tree is self._tree:
            return self._counting
        known = self._by_name(self._counting)
        return np.array([known.get(queue.name, 0.0) for queue in tree.queues], dtype=np.float64)

    def status_of(self, tree: Tree, place: int) -> tuple[float | None, datetime | None]:
        """Return the average of a queue that counts, and its time; None for both before the tree is followed."""
        if tree is not self._tree:
            return None, None
        return float(self._counting[place]), datetime.fromtimestamp(float(self._times[place]), UTC)

    def saved(self) -> dict[str, Any]:
        """Return the averages and their times, as JSON values."""
        columns = (self._averages, self._counting, self._times, self._shares)
        names = [queue.name for queue in self._tree.queues]
        rows = [list(row) for row in zip(names, *(column.tolist() for column in columns), strict=True)]
        return {"at": self._at, "next": self._next, "queues": rows}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continue with averages that `saved` returned."""
        self._at, self._next = saved["at"], saved["next"]
        rows = saved["queues"]
        self._tree = Tree(Queue(row[0]) for row in rows)
        columns = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 4).T
        self._averages, self._counting, self._times, self._shares = columns

    def _count(self, now: float) -> None:
        """Let the averages count that changed."""
        self._next = now + self._step
        changed = np.abs(self._averages - self._counting) > _CHANGE
        if changed.any():
            self._counting = np.where(changed, self._averages, self._counting)
            self._times = np.where(changed, self._clock.utc_now().timestamp(), self._times)
            self.version += 1

    def _replace(self, tree: Tree, shares: Floats, objects: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over another tree. The averages of queues that are new in it are those of their statuses."""
        now = self._clock.utc_now().timestamp()
        known = [self._by_name(each) for each in (self._averages, self._counting, self._times)]
        rows = []
        for queue, share in zip(tree.queues, shares.tolist(), strict=True):
            name = queue.name
            if name in known[0]:
                rows.append([of[name] for of in known])
            else:
                average = self._continued(objects.get(name, {}), share, now)
                rows.append([average, average, now])
        columns = np.array(rows, dtype=np.float64).reshape(-1, len(known)).T
        self._averages, self._counting, self._times = columns
        self._tree = tree
        self.version += 1

    def _kept(self, seconds: float) -> float:
        """Return the part of an average that is left after a time."""
        return math.exp2(-max(0.0, seconds) / self._half_life)

    def _by_name(self, values: Floats) -> dict[str, float]:
        names = (queue.name for queue in self._tree.queues)
        return dict(zip(names, values.tolist(), strict=True))

    def _continued(self, obj: Mapping[str, Any], share: float, now: float) -> float:
        """Return the average of a queue's status, continued to now as if its present use had lasted since; 0 without one."""
        status = obj.get("status") or {}
        try:
            average = float(str(status[AVERAGE]).removesuffix("%")) / 100
            since = datetime.fromisoformat(str(status[AVERAGE_TIME])).timestamp()
        except (KeyError, ValueError, OverflowError, OSError):
            return 0.0
        if not 0 <= average <= 1:
            return 0.0
        kept = self._kept(now - since)
        return average * kept + share * (1 - kept)
