"""Proposes remedies for pods that exceed a quota: a higher limit, or the end of the fewest pods that use it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from scheduler.framework import Change, Remedy
from scheduler.objects.label_index import some_of
from scheduler.objects.quantity import readable_amounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows

_MOST_PODS: Final = 1024
"""The number of pods among which those are searched that use most."""


def higher_limit(pod: PodInfo, clauses: Sequence[str], plugin: str) -> Remedy:
    """Return the remedy that some limits were higher; the pod is evaluated without the plugin."""

    def change(fitting: Rows) -> Change:
        return Change(int(fitting[0]), " and ".join(clauses), pod)

    return Remedy(pod, change, without=plugin)


def limit_clause(resource: str, what: str, needed: int, now: int) -> str:
    """Return the clause after which a limit is high enough."""
    more, before = readable_amounts(resource, needed, now)
    return f"{what} were {more} or more (now {before})"


def fewest_ended(
    pod: PodInfo, users: Iterable[tuple[int, PodInfo]], lacking: Mapping[str, int], whose: str
) -> Remedy | None:
    """Return the remedy that the fewest pods end, so that a quota has enough left; None if all of them are not enough.

    Args:
        pod: the pod.
        users: rows and pods that use the quota.
        lacking: resource -> what the quota lacks for the pod.
        whose: the description of the users, as in "of namespace a".
    """
    open_amounts = dict(lacking)

    def frees(user: tuple[int, PodInfo]) -> float:
        taken = user[1].resources.taken
        return sum(min(taken.get(name, 0) / amount, 1.0) for name, amount in lacking.items())

    ended: list[tuple[int, PodInfo]] = []
    for user in sorted(islice(users, _MOST_PODS), key=frees, reverse=True):
        if not open_amounts:
            break
        taken = user[1].resources.taken
        if not any(taken.get(name, 0) > 0 for name in open_amounts):
            continue
        ended.append(user)
        left = {name: amount - taken.get(name, 0) for name, amount in open_amounts.items()}
        open_amounts = {name: amount for name, amount in left.items() if amount > 0}
    if open_amounts or not ended:
        return None
    names = [each.key for _, each in ended]
    text = (
        f"pod {names[0]} {whose} ended"
        if len(names) == 1
        else f"{len(names)} pods {whose} ended ({some_of(names)})"
    )

    def change(fitting: Rows) -> Change:
        return Change(int(fitting[0]), text, pod)

    return Remedy(pod, change, ended=ended)
