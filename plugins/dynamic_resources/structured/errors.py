"""The results of a search for devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Sequence


class AllocationError(SchedulerError):
    """A claim, a class or a slice is invalid: the whole attempt fails, with the error's message."""


class InvalidPoolsError(SchedulerError):
    """Nothing fits this node, and a pool there is invalid: only the node is rejected, with the error's message."""


class OutOfTimeError(SchedulerError):
    """The search took too long."""


class DeviceRefusal(NamedTuple):
    """Why devices cannot be allocated to claims on a node.

    Attributes:
        words: upstream's message; for a claim only what follows its name, so that pods with equal claims share it.
        is_error: whether the attempt fails, or only this node is rejected.
        claim: the index of the claim to name before the message; None without one.
    """

    words: str
    is_error: bool = False
    claim: int | None = None

    def named(self, names: Sequence[str]) -> DeviceRefusal:
        """Return the refusal with the name of the claim in its message; `names` are those of all claims."""
        if self.claim is None:
            return self
        return DeviceRefusal(f"claim {names[self.claim]}{self.words}", self.is_error)


class Alternatives(NamedTuple):
    """Devices can be allocated to claims on a node, with the chosen alternatives of their requests.

    Attributes:
        chosen: the indexes of the alternatives, in the order of claims and requests.
    """

    chosen: tuple[int, ...]


Verdict = DeviceRefusal | Alternatives | None
"""The result of a node: None means yes, without a choice between alternatives."""

NOT_ALL: Final = DeviceRefusal("cannot allocate all claims")
INVALID_POOLS: Final = DeviceRefusal("invalid resource pools were encountered")
