"""What a search for devices comes to, in short."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.errors import SchedulerError


class AllocationError(SchedulerError):
    """Something is wrong with a claim, a class or a slice: the whole attempt fails, in the words of the error."""


class InvalidPoolsError(SchedulerError):
    """Nothing fits this node, and some pool there is broken: the node alone is refused, in the words of the error."""


class OutOfTimeError(SchedulerError):
    """The search took too long."""


class Refusal(NamedTuple):
    """Why claims cannot be given devices on a node.

    Attributes:
        words: upstream's.
        is_error: whether the attempt fails, or this node alone is refused.
    """

    words: str
    is_error: bool = False


class Alternatives(NamedTuple):
    """Claims can be given devices on a node, and of requests that have alternatives, which.

    Attributes:
        chosen: the places of the alternatives, in the order of claims and requests.
    """

    chosen: tuple[int, ...]


Verdict = Refusal | Alternatives | None
"""What is said of a node: None is yes, where there was nothing to choose."""
