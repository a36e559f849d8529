"""The pods that wait for the cluster to change, found by what they wait for.

With ten thousand pods waiting, most events help none of them. So pods are kept by the plugins whose word could wake
them, and an event costs what the pods of the plugins that registered for it cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.queue.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.framework.queued_pod import QueuedPodInfo

_Uids = dict[str, None]  # an ordered set


class UnschedulablePods:
    """Uids of unschedulable and gated pods, by profile and plugin.

    A gated pod is kept by the plugin that gates it alone: while that one says no, nobody else's word counts.
    """

    def __init__(self) -> None:
        self._awaited: dict[str, tuple[str, frozenset[str]]] = {}  # uid -> its profile, who could wake it
        self._waiting: dict[str, dict[str, _Uids]] = {}  # profile -> plugin -> pods it could wake
        self._deadlines = KeyedHeap()

    def put(self, queued: QueuedPodInfo, flush_at: float | None) -> None:
        """Add a pod, or note anew whom it waits for; without `flush_at` only events can help it."""
        uid, profile = queued.pod.uid, queued.pod.scheduler_name
        self.remove(uid)
        plugins = (
            frozenset({queued.gating_plugin})
            if queued.is_gated
            else queued.unschedulable_plugins | queued.pending_plugins
        )
        self._awaited[uid] = (profile, plugins)
        by_plugin = self._waiting.setdefault(profile, {})
        for plugin in plugins:
            by_plugin.setdefault(plugin, {})[uid] = None
        if flush_at is not None:
            self._deadlines.put(uid, (flush_at,))

    def remove(self, uid: str) -> None:
        """Take a pod out, if it is there."""
        profile, plugins = self._awaited.pop(uid, ("", frozenset[str]()))
        if not plugins:
            return
        self._deadlines.remove(uid)
        by_plugin = self._waiting[profile]
        for plugin in plugins:
            uids = by_plugin[plugin]
            del uids[uid]
            if not uids:
                del by_plugin[plugin]
        if not by_plugin:
            del self._waiting[profile]

    @property
    def profiles(self) -> Iterable[str]:
        """The profiles of the pods here."""
        return self._waiting

    def waiting_for(self, profile: str, plugins: Iterable[str]) -> Iterator[str]:
        """Yield the pods of a profile that one of the plugins could wake, each once.

        Nothing may be put or removed until the last was taken.
        """
        by_plugin = self._waiting.get(profile, {})
        waiting = [uids for plugin in plugins if (uids := by_plugin.get(plugin))]
        if len(waiting) == 1:
            return iter(waiting[0])
        return iter({uid: None for uids in waiting for uid in uids})

    def due(self, now: float) -> list[str]:
        """Return the pods that are to be tried again although nothing happened; they stay here."""
        due: list[str] = []
        while (first := self._deadlines.peek()) is not None and first[0][0] <= now:
            self._deadlines.pop()
            due.append(first[1])
        return due

    def next_deadline(self) -> float | None:
        """Return when `due` next has something to return; None for never."""
        first = self._deadlines.peek()
        return None if first is None else first[0][0]

    def __len__(self) -> int:
        return len(self._awaited)

    def __contains__(self, uid: object) -> bool:
        return uid in self._awaited

    def __iter__(self) -> Iterator[str]:
        return iter(self._awaited)

    def check(self) -> None:
        """Assert what always holds."""
        kept: dict[str, set[str]] = {}
        for profile, by_plugin in self._waiting.items():
            assert by_plugin, f"profile {profile} is kept without pods"
            for plugin, uids in by_plugin.items():
                assert uids, f"plugin {plugin} is kept without pods"
                for uid in uids:
                    assert self._awaited[uid][0] == profile, f"pod {uid} is kept under profile {profile}"
                    kept.setdefault(uid, set()).add(plugin)
        for uid, (_, plugins) in self._awaited.items():
            assert plugins, f"pod {uid} waits for nobody"
            assert kept.pop(uid) == plugins, f"pod {uid} is not found by all of {sorted(plugins)}"
        assert not kept, f"pods {sorted(kept)} are kept and not waiting"
        astray = set(self._deadlines) - set(self._awaited)
        assert not astray, f"pods {sorted(astray)} have a deadline and do not wait"
