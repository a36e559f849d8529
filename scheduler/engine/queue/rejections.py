"""The number of pending pods that each plugin rejects or gates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.queued_pod import QueuedPodInfo


class Rejections:
    """Counts the waiting pods, in any place, by the plugins that rejected their last attempt or gate them."""

    def __init__(self) -> None:
        self._noted: dict[str, list[tuple[str, str]]] = {}  # uid -> the keys under which it is counted
        self._counts = Counter[tuple[str, str]]()

    def note(self, queued: QueuedPodInfo) -> None:
        """Count a pod under its current rejecting plugins instead of the earlier ones."""
        uid = queued.pod.uid
        self.forget(uid)
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if rejectors:
            noted = self._noted[uid] = [(plugin, queued.pod.scheduler_name) for plugin in rejectors]
            self._counts.update(noted)

    def forget(self, uid: str) -> None:
        """Stop counting a pod."""
        for key in self._noted.pop(uid, ()):
            self._counts[key] -= 1

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """(plugin, profile) -> number of pods; plugins that had pods earlier stay, with 0."""
        return self._counts

    def check(self) -> None:
        """Assert the invariants."""
        counts = Counter(key for noted in self._noted.values() for key in noted)
        assert counts == +self._counts, f"{counts} found, {self._counts} counted"
