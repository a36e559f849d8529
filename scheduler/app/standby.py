"""What a scheduler that stands by notices of pods is said once it leads: until then others may have said it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.cycle.reporting import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.cycle.reporting import EventSink, StatusWriter
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo


class StandbyReporter(Reporter):
    """Reports while leading, and keeps in mind what it could not report.

    Args:
        is_leading: whether anything may be written now.
        newest: `namespace/name` -> the pod's last version that could be read, None if there is none.
    """

    def __init__(
        self,
        events: Mapping[str, EventSink],
        status: StatusWriter,
        *,
        is_leading: Callable[[], bool],
        newest: Callable[[str], PodInfo | None],
    ) -> None:
        super().__init__(events, status)
        self._is_leading = is_leading
        self._newest = newest
        # pod key -> what was to be said last, and the newest version then
        self._unsaid: dict[str, tuple[str, PodInfo, Status, PodInfo | None]] = {}

    def failed(
        self, profile: str, pod: PodInfo, status: Status, nominated_node_name: str | None = None
    ) -> None:
        if self._is_leading():
            super().failed(profile, pod, status, nominated_node_name)
        else:
            self._unsaid[pod.key] = profile, pod, status, self._newest(pod.key)

    def outdated(self, key: str) -> None:
        self._unsaid.pop(key, None)

    def catch_up(self) -> None:
        """Report what is still so: a version that could be read came after none of these."""
        unsaid, self._unsaid = self._unsaid, {}
        for key, (profile, pod, status, newest) in unsaid.items():
            if self._newest(key) is newest:
                self.failed(profile, pod, status)
