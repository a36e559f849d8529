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


class Tolerated:
    """The taints that any of some tolerations covers: `taint in tolerated`, in the same time however many tolerations there are.

    A user may give a pod tens of thousands of tolerations, and a cluster may have thousands of distinct taints.

    Args:
        tolerations: `Toleration.tolerates` says what each covers.
    """

    __slots__ = ("_any_value", "_one_value")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._any_value: set[tuple[str, str]] = set()  # key, effect
        self._one_value: set[tuple[str, str, str]] = set()  # key, effect, value
        for each in tolerations:
            if each.operator in {"", "Equal"}:
                self._one_value.add((each.key, each.effect, each.value))
            elif each.operator == "Exists":
                self._any_value.add((each.key, each.effect))

    def __contains__(self, taint: Taint) -> bool:
        key, effect, value = taint.key, taint.effect, taint.value
        found, exact = self._any_value, self._one_value
        # Written out, since it is asked for every distinct taint of a cluster.
        if found and (
            (key, effect) in found or (key, "") in found or ("", effect) in found or ("", "") in found
        ):
            return True
        return bool(exact) and (
            (key, effect, value) in exact
            or (key, "", value) in exact
            or ("", effect, value) in exact
            or ("", "", value) in exact
        )
