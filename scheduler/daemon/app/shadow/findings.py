"""The result of the comparison: counts by cause, and the last disagreements."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.daemon.app.shadow.comparison import AGREEMENT, CAUSES, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.daemon.metrics.families import Families

LOG_BYTES: Final = 8 * 1024 * 1024
"""For disagreements: about 8000, as JSON."""
_ENTRY_BYTES = 200  # overhead of an entry besides its JSON
BY_ORDER: Final = "by_order"
AS_SEEN: Final = "as_seen"


class Findings:
    """Counts, and a log of disagreements.

    Args:
        families: the metrics.
        log_bytes: size of the log; the oldest entries are dropped first.

    Attributes:
        counts: (profile, cause, order) -> number of decisions; order is whether another order than the received one
            explains it.
        tipped: (profile, plugin) -> how often that plugin favoured this scheduler's node over the other's the most.
        forgotten: number of dropped disagreements.
    """

    def __init__(self, families: Families, log_bytes: int = LOG_BYTES) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.tipped: Counter[tuple[str, str]] = Counter()
        self.forgotten = 0
        self._budget, self._bytes = log_bytes, 0
        self._log: OrderedDict[tuple[str, int], bytes] = OrderedDict()  # (pod, number) -> JSON
        self._of_pod: dict[str, list[int]] = {}  # pod -> numbers
        self._number = 0
        self._decisions = families.counters(
            "custom_scheduler_shadow_decisions_total",
            "Decisions of the scheduler that is shadowed, by whose profile judged them (default: the default plugins; "
            "config: the profile given), cause (see docs/shadow.md), and order: as_seen, or by_order where another order "
            "of its decisions than the one in which they were seen explains it.",
            "profile cause order",
        )
        self._kept = families.gauges(
            "custom_scheduler_shadow_log_bytes", "How large the log of disagreements is."
        )

    def note(self, profile: str, cause: str, *, was_moved: bool) -> None:
        """Count one decision."""
        how = BY_ORDER if was_moved else AS_SEEN
        self.counts[profile, cause, how] += 1
        self._decisions[profile, cause, how].add()

    def keep(self, key: str, details: Mapping[str, Any]) -> None:
        """Log a disagreement about a pod (`namespace/name`); it contains the profile, and both choices if there are two."""
        plugin = _tipped_by(
            details.get("theirs", {}).get("scores", {}), details.get("ours", {}).get("scores", {})
        )
        if plugin:
            self.tipped[details["profile"], plugin] += 1
        written = msgspec.json.encode(details)
        self._number += 1
        self._log[key, self._number] = written
        self._of_pod.setdefault(key, []).append(self._number)
        self._bytes += len(written) + _ENTRY_BYTES
        while self._bytes > self._budget:
            self._forget()
        self._kept[()].value = self._bytes

    def of(self, key: str) -> list[dict[str, Any]]:
        """Return the logged disagreements about a pod, oldest first."""
        return [msgspec.json.decode(self._log[key, number]) for number in self._of_pod.get(key, ())]

    def latest(self, most: int) -> list[dict[str, Any]]:
        """Return at most `most` of the last disagreements, the latest first."""
        found: list[dict[str, Any]] = []
        for written in reversed(self._log.values()):
            if len(found) == most:
                break
            found.append(msgspec.json.decode(written))
        return found

    def summary(self) -> dict[str, Any]:
        """Return profile -> the numbers of agreeing and of unknown decisions, and the numbers by cause."""
        return {profile: self._of_profile(profile) for profile in sorted({each[0] for each in self.counts})}

    def _of_profile(self, profile: str) -> dict[str, Any]:
        mine = [(cause, how, n) for (whose, cause, how), n in sorted(self.counts.items()) if whose == profile]
        causes: dict[str, dict[str, int]] = {}
        for cause, how, number in mine:
            causes.setdefault(cause, {})[how] = number
        return {
            "decisions": sum(n for _, _, n in mine),
            "agree": sum(n for cause, _, n in mine if cause in AGREEMENT),
            "unknown": sum(n for cause, _, n in mine if cause in UNKNOWN),
            "causes": causes,
            "tippedBy": {plugin: n for (whose, plugin), n in self.tipped.most_common() if whose == profile},
        }

    def _forget(self) -> None:
        (key, number), written = self._log.popitem(last=False)
        self._bytes -= len(written) + _ENTRY_BYTES
        self.forgotten += 1
        numbers = self._of_pod[key]
        numbers.remove(number)
        if not numbers:
            del self._of_pod[key]


def _tipped_by(theirs: Mapping[str, int], ours: Mapping[str, int]) -> str:
    """Return the plugin whose scores differ most in favour of this scheduler's node; "" if there is none."""
    ahead = {plugin: ours.get(plugin, 0) - theirs.get(plugin, 0) for plugin in [*ours, *theirs]}
    plugin = max(ahead, key=lambda each: ahead[each], default="")
    return plugin if plugin and ahead[plugin] > 0 else ""


def lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a service's summary as lines for people."""
    if summary["notSearched"]:
        yield f"{summary['notSearched']} decisions got no search for an order that explains them: there were too many"
    for profile, details in summary["profiles"].items():
        total, agree, unknown = details["decisions"], details["agree"], details["unknown"]
        share = f"{100 * agree / total:.2f} %" if total else "none"
        yield f"{profile}: {total} decisions, {agree} agree ({share}), {unknown} cannot be known"
        for cause, numbers in details["causes"].items():
            moved = numbers.get(BY_ORDER, 0)
            order = f", {moved} of them in another order than seen" if moved else ""
            yield f"  {sum(numbers.values()):>7}  {cause}: {CAUSES[cause]}{order}"
        for plugin, number in details["tippedBy"].items():
            yield f"  {number:>7}  tipped by {plugin}"
