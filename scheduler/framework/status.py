"""What a plugin answers: a code and its reasons. Expected outcomes are values, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Code(Enum):
    """What happens next; the values are kube-scheduler's words for it.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, Code.
    """

    SUCCESS = "Success"
    """Go on."""
    ERROR = "Error"
    """Something is broken; the pod is tried again after a backoff of its own."""
    UNSCHEDULABLE = "Unschedulable"
    """Not now; removing other pods might help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not now, and removing other pods would not help."""
    WAIT = "Wait"
    """Permit only: hold the pod until it is allowed, rejected, or its time is over."""
    SKIP = "Skip"
    """PreFilter and PreScore: this plugin has nothing to say of this pod. Bind: ask the next binder."""
    PENDING = "Pending"
    """Not now, and the plugin itself has started something that will help: no backoff when it has."""

    # There is one object per member; Enum's own hash is a Python call, paid for every outcome of a table.
    __hash__ = object.__hash__

    @property
    def is_rejection(self) -> bool:
        """Whether the pod waits for the cluster to change."""
        return self in _REJECTIONS


_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """One answer.

    Attributes:
        code: what happens next.
        reasons: for people; of a refused node they are the words after the count in
            "0/5 nodes are available: 3 Insufficient cpu."
        plugin: who answered; filled in by the runtime.
        error: what was raised, where the code is ERROR because of it.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    error: BaseException | None = None

    @classmethod
    def unschedulable(cls, *reasons: str, resolvable: bool = True) -> Self:
        """Refuse; `resolvable` says whether removing other pods might help."""
        return cls(Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)

    @classmethod
    def failed(cls, reason: str, error: BaseException | None = None) -> Self:
        """Say that something is broken."""
        return cls(Code.ERROR, (reason,), error=error)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        return self.code.is_rejection

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Self:
        """Return this answer with the plugin that gave it."""
        return self if self.plugin else replace(self, plugin=plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)
