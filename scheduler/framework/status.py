"""The result of a plugin: a code and its reasons. Expected results are values, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from scheduler.framework.reasons import Cause, codes_of, error_causes

if TYPE_CHECKING:
    from typing import Self


class Code(Enum):
    """The kinds of results of an extension point; the values are kube-scheduler's names.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, Code.
    """

    SUCCESS = "Success"
    """Continue."""
    ERROR = "Error"
    """An internal failure; the pod is retried after an error backoff."""
    UNSCHEDULABLE = "Unschedulable"
    """Not now; removing other pods might help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not now, and removing other pods would not help."""
    WAIT = "Wait"
    """Permit only: hold the pod until it is allowed or rejected, or until the timeout."""
    SKIP = "Skip"
    """PreFilter and PreScore: skip this plugin for this pod. Bind: call the next binder."""
    PENDING = "Pending"
    """Not now, but the plugin has started an action that will help: no backoff afterwards."""

    # Each member is one object; Enum's own hash is a Python call, paid for every outcome of a table.
    __hash__ = object.__hash__

    @property
    def is_rejection(self) -> bool:
        """Whether the pod waits for the cluster to change."""
        return self in _REJECTIONS


_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """The result of a plugin.

    Attributes:
        code: what happens next.
        reasons: texts for people, each perhaps with a code, see `Reason`; for a rejected node, each is the text after
            the count in "0/5 nodes are available: 3 Insufficient cpu."
        plugin: name of the plugin; set by the runtime.
        error: the exception, if the code is ERROR because of it.
        origins: the causes, if the scheduler has combined the reasons into one text; set by the scheduler.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    error: BaseException | None = None
    origins: tuple[Cause, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def unschedulable(cls, *reasons: str, resolvable: bool = True) -> Self:
        """Return a rejection; `resolvable` is whether removing other pods might help."""
        return cls(Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)

    @classmethod
    def failed(cls, reason: str, error: BaseException | None = None) -> Self:
        """Return the status of an attempt that fails: the pod is tried again after a backoff, without an event."""
        return cls(Code.ERROR, (reason,), error=error)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        return self.code.is_rejection

    @property
    def message(self) -> str:
        """The reasons, joined in one line."""
        return ", ".join(self.reasons)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of a rejection or an error, each once; of a rejection only if it has a plugin or a reason with a code."""
        if self.origins:
            return self.origins
        if self.code is Code.ERROR:
            return error_causes(self.reasons, self.plugin, self.error)
        if not self.is_rejected:
            return ()
        return tuple(Cause(code, self.plugin) for code in codes_of(self.reasons, self.plugin))

    def by(self, plugin: str) -> Self:
        """Return this status with the name of its plugin."""
        return self if self.plugin else replace(self, plugin=plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)
