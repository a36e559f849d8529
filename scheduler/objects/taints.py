"""Taints, tolerations, and the one rule between them."""

from __future__ import annotations

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

    def tolerates(self, taint: Taint) -> bool:
        """Say whether this toleration covers a taint.

        An empty effect covers every effect, an empty key every key; the operators Lt and Gt belong to a
        feature that is off in 1.36 and cover nothing.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/api/core/v1/toleration.go, ToleratesTaint.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in {"", "Equal"}:
            return self.value == taint.value
        return self.operator == "Exists"


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Say whether any of the tolerations covers a taint."""
    return any(toleration.tolerates(taint) for toleration in tolerations)
