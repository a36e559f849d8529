"""What a search for devices comes to, in short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Sequence


class AllocationError(SchedulerError):
    """Something is wrong with a claim, a class or a slice: the whole attempt fails, in the words of the error."""


class InvalidPoolsError(SchedulerError):
    """Nothing fits this node, and some pool there is broken: the node alone is refused, in the words of the error."""


class OutOfTimeError(SchedulerError):
    """The search took too long."""


class Refusal(NamedTuple):
    """Why claims cannot be given devices on a node.

    Attributes:
        words: upstream's; of a claim only what follows its name, so that pods whose claims ask the same share a refusal.
        is_error: whether the attempt fails, or this node alone is refused.
        claim: the place of the claim that is to be named before the words; None where none is.
    """

    words: str
    is_error: bool = False
    claim: int | None = None

    def named(self, names: Sequence[str]) -> Refusal:
        """Return the refusal as it is told, with the name of the claim; `names` are those of all claims."""
        if self.claim is None:
            return self
        return Refusal(f"claim {names[self.claim]}{self.words}", self.is_error)


class Alternatives(NamedTuple):
    """Claims can be given devices on a node, and of requests that have alternatives, which.

    Attributes:
        chosen: the places of the alternatives, in the order of claims and requests.
    """

    chosen: tuple[int, ...]


Verdict = Refusal | Alternatives | None
"""What is said of a node: None is yes, where there was nothing to choose."""

NOT_ALL: Final = Refusal("cannot allocate all claims")
INVALID_POOLS: Final = Refusal("invalid resource pools were encountered")
