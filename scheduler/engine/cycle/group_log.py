"""A log of the last attempt at each pod group, for later explanations."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.engine.cycle.group_explanation import explain_pass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler.clock import Clock
    from scheduler.engine.cycle.group_pass import Pass
    from scheduler.framework.status import Status
    from scheduler.objects.pod_group import GroupKey

_MOST_MEMBERS: Final = 20_000
"""Maximum number of members of all groups, a few hundred bytes each; the group tried longest ago is evicted first."""


@dataclass(frozen=True, slots=True)
class PastGroupAttempt:
    """One attempt at a group.

    Attributes:
        at: time of the decision.
        seconds: duration of the attempt.
        explanation: the result of `explain_pass`.
    """

    at: datetime
    seconds: float
    explanation: dict[str, Any]


class GroupLog:
    """The last attempts, by group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[GroupKey, PastGroupAttempt] = OrderedDict()
        self._members = 0

    def note(self, tried: Pass, status: Status, result: str, *, seconds: float) -> None:
        """Add an attempt; it becomes the last one at its group."""
        key = tried.group.key
        self._drop(key)
        explanation = explain_pass(tried, status, result)
        self._kept[key] = PastGroupAttempt(self._clock.utc_now(), seconds, explanation)
        self._members += _size(explanation)
        while self._members > _MOST_MEMBERS and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def last(self, key: GroupKey) -> PastGroupAttempt | None:
        """Return the last attempt at a group; None if there is none or it was evicted."""
        return self._kept.get(key)

    def called(self, key: str) -> list[GroupKey]:
        """Return the logged groups with the name `namespace/name`."""
        return [group for group in self._kept if group.key == key]

    def _drop(self, key: GroupKey) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._members -= _size(found.explanation)


def _size(explanation: Mapping[str, Any]) -> int:
    return 1 + len(explanation["members"])  # a group without placements has no members here
