"""A slow and obvious model of groups that wait as one entity: each is one entry of a list, with its pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor

INITIAL, MOST = 1.0, 10.0


@dataclass
class SlowGroup:
    """A group with pods in the queue.

    Attributes:
        place: "active", "backoff", "unschedulable", "in flight"; "held" once it was found to have a gated pod.
        gated: the waiting pods, and whether each is gated.
        popped: the pods of the running attempt that did not come back yet.
        rejectors: the pods that came back, or were rejected before, and the plugin that rejected each; "" for an error.
        is_helped: whether an event during the attempt helps a pod that is rejected for its size.
    """

    timestamp: float
    place: str = "active"
    rejections: int = 0
    errors: int = 0
    gated: dict[str, bool] = field(default_factory=dict)
    popped: set[str] = field(default_factory=set)
    rejectors: dict[str, str] = field(default_factory=dict)
    is_helped: bool = False

    @property
    def is_gated(self) -> bool:
        return any(self.gated.values())

    @property
    def backoff_ends_in(self) -> float:
        """The window in which its backoff ends."""
        count = self.errors or self.rejections
        seconds = min(INITIAL * 2 ** (count - 1), MOST) if count else -1e9
        return float(floor(self.timestamp + seconds))


class SlowGroups:
    def __init__(self) -> None:
        self.groups: dict[str, SlowGroup] = {}

    def at(self, place: str) -> list[SlowGroup]:
        return [each for each in self.groups.values() if each.place == place]

    def knows(self, group: str, pod: str) -> bool:
        known = self.groups.get(group)
        return known is not None and pod in {*known.gated, *known.popped, *known.rejectors}

    def add(self, group: str, pod: str, *, gated: bool, now: float) -> None:
        each = self.groups.setdefault(group, SlowGroup(now))
        was_empty = not each.gated
        each.gated[pod] = gated
        if each.place == "in flight" or was_empty:
            return
        if each.is_gated:
            each.place = "held" if each.place == "unschedulable" and not gated else each.place
        else:
            self.wake(each, now)

    def delete(self, group: str, pod: str, now: float) -> None:
        each = self.groups[group]
        was_gated = each.is_gated
        each.gated.pop(pod, None)
        each.popped.discard(pod)
        each.rejectors.pop(pod, None)
        if each.place == "in flight":
            return
        if not each.gated:
            del self.groups[group]
        elif was_gated and not each.is_gated and each.place == "held":
            self.wake(each, now)

    def admit(self, group: str, pod: str, now: float) -> None:
        """Remove the gate of a pod."""
        each = self.groups[group]
        each.gated[pod] = False
        if each.place != "in flight" and not each.is_gated:
            self.wake(each, now)

    def wake(self, each: SlowGroup, now: float) -> None:
        """Try a waiting group again after its backoff."""
        if each.place in {"unschedulable", "held"}:
            each.place = "backoff" if each.backoff_ends_in >= floor(now) else "active"

    def may_pop(self) -> list[SlowGroup]:
        """Return the groups that may be popped: several where keys are equal."""
        found = [each for each in self.at("active") if not each.is_gated]
        return [each for each in found if each.timestamp == min(other.timestamp for other in found)]

    def pop(self, each: SlowGroup) -> None:
        each.place, each.is_helped = "in flight", False
        each.popped, each.gated, each.rejectors = set(each.gated), {}, {}

    def come_back(self, group: str, pod: str, rejector: str) -> None:
        each = self.groups[group]
        each.popped.discard(pod)
        each.rejectors[pod] = rejector

    def happen(self, now: float) -> None:
        """A node was added."""
        for each in self.groups.values():
            if each.place == "in flight":
                each.is_helped = True
            elif each.place == "unschedulable" and "Fit" in each.rejectors.values():
                if each.is_gated:
                    each.place = "held"
                else:
                    self.wake(each, now)

    def end(self, group: str, *, is_placed: bool, now: float) -> None:
        """End an attempt; all pods that did not come back were placed."""
        each = self.groups[group]
        arrived, each.popped = dict(each.gated), set()
        back = each.rejectors
        each.gated |= dict.fromkeys(back, False)
        if not each.gated:
            del self.groups[group]
            return
        if not back or is_placed:
            each.place = "active"
        else:
            each.timestamp = now
            if "" in back.values():
                each.errors += 1
            else:
                each.rejections, each.errors = each.rejections + 1, 0
            is_helped = each.is_helped and "Fit" in back.values()
            each.place = "unschedulable"
            if is_helped or "" in back.values() or not all(arrived.values()):
                self.wake(each, now)
        if not back:  # the next group, with a turn of its own
            each.rejections = each.errors = 0
        if each.is_gated and each.place != "unschedulable":
            each.place = "held"

    def flush(self, now: float) -> None:
        for each in self.at("backoff"):
            if now >= each.backoff_ends_in + 1:
                each.place = "active"
