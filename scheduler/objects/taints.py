"""Taints, tolerations, and the match between them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from scheduler.objects.meta import ApiStruct

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(ApiStruct, frozen=True):
    """v1.Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(ApiStruct, frozen=True):
    """v1.Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Tolerations:
    """The tolerations of a pod, indexed by what they cover: the cost does not depend on their number."""

    __slots__ = ("_covered",)

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        # Key, effect and value, each "" or None if the toleration covers any.
        self._covered: set[tuple[str, str, str | None]] = set()
        for each in tolerations:
            if each.operator in {"", "Equal"}:
                self._covered.add((each.key, each.effect, each.value))
            elif each.operator == "Exists":
                self._covered.add((each.key, each.effect, None))

    def cover(self, taint: Taint) -> bool:
        """Return whether a toleration covers a taint.

        An empty effect covers every effect, an empty key every key; the operators Lt and Gt belong to a
        feature that is off in 1.36 and cover nothing.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/api/core/v1/toleration.go, ToleratesTaint.
        """
        if not self._covered:
            return False
        ways = product((taint.key, ""), (taint.effect, ""), (taint.value, None))
        return not self._covered.isdisjoint(ways)
