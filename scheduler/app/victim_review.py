"""Asks extenders about preemption: rows of a snapshot to names of nodes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.extenders.chain import Extenders
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Victims = Mapping[int, tuple[Sequence[PodInfo], int]]


class ExtenderReview:
    """Fulfils `VictimReview`.

    Args:
        extenders: gives the extenders in force; None where there are none.
    """

    def __init__(self, extenders: Callable[[], Extenders | None]) -> None:
        self._extenders = extenders

    async def review(self, pod: PodInfo, snapshot: Snapshot, victims: Victims) -> Victims:
        extenders = self._extenders()
        if not extenders or not extenders.may_change_victims(pod):
            return victims
        by_name = {snapshot.name_of(row): found for row, found in victims.items()}
        left = await extenders.preempt(pod, snapshot, by_name)
        rows = {name: snapshot.row_of(name) for name in left}
        return {row: left[name] for name, row in rows.items() if row is not None}
