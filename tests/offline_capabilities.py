"""What plugins may ask for where nothing is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.cycle.profiles import Profiles
from scheduler.framework import PodBinder
from scheduler.framework.preemption import Preemptions, VictimReview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo


class NoBinder:
    """Binds nothing."""

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...


OFFLINE: Mapping[type, object] = {
    PodBinder: NoBinder(),
    Preemptions: NoPreemptions(),
    VictimReview: ExtenderReview(Profiles()),
}
"""Protocol -> what fulfils it."""
