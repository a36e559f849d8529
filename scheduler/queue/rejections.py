"""How many pending pods each plugin keeps from running."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.queued_pod import QueuedPodInfo


class Rejections:
    """Counts the pods that wait, wherever they do, by who rejected their last attempt or gates them."""

    def __init__(self) -> None:
        self._noted: dict[str, list[tuple[str, str]]] = {}  # uid -> what it counts for
        self._counts = Counter[tuple[str, str]]()

    def note(self, queued: QueuedPodInfo) -> None:
        """Count a pod for its rejectors, and no longer for those it had."""
        uid = queued.pod.uid
        self.forget(uid)
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if rejectors:
            noted = self._noted[uid] = [(plugin, queued.pod.scheduler_name) for plugin in rejectors]
            self._counts.update(noted)

    def forget(self, uid: str) -> None:
        """Count a pod no longer."""
        for key in self._noted.pop(uid, ()):
            self._counts[key] -= 1

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """(plugin, profile) -> pods; those that had pods once stay, with 0."""
        return self._counts

    def check(self) -> None:
        """Assert what always holds."""
        counts = Counter(key for noted in self._noted.values() for key in noted)
        assert counts == +self._counts, f"{counts} found, {self._counts} counted"
