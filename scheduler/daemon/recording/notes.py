"""The notes of a recording, in the order of events.

A note is a tuple that begins with its kind. A note that begins a step has the step's time next, in
microseconds since the recording began. All other notes belong to the step before them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final


class Note(IntEnum):
    """The kinds of notes, with the fields that follow."""

    TOLD = 0
    """us, kind of objects, word, key, object: the watch showed an object; the word is one of `ObjectEvent`."""
    STARTED = 1
    """us, number, name: a task began; if several tasks have one name, they begin in the same order in a replay."""
    RESUMED = 2
    """us, number: a task continued after a wait."""
    ANSWERED = 3
    """us, number, error, value: the answer of an external call; within a task's step, the task continues with it."""
    CONFIGURED = 4
    """us, stage, YAML, folder: see `Ports.configured`."""
    MENDED = 5
    """us, what: see `Ports.repaired`."""
    LOST = 6
    """us, number: this many notes are missing, 0 if unknown; the following state does not continue the one before."""

    OBSERVED = 16
    """ordinal: the nth measured condition in this step was true."""
    READ = 17
    """ordinal, us: the nth reading of the clock in this step, long after the step's beginning."""
    ASKED = 18
    """number, what: an external call was made."""
    DECIDED = 19
    """pod uid, node, message, nominated node: see `ObservedPorts.decided`."""
    GAVE_UP = 20
    """number: nothing waits for the answer of an external call any more."""
    STOPPED = 21
    """An attempt was stopped at its time limit: the following state does not continue the one before."""

    NEEDED_TIME = 22
    """An attempt needed more than a time slice of the loop: see `Time.has_slices`."""

    STATE = 32
    """us, state: the state at the beginning of a file that is not the first of its run; see `state`."""
    OBJECT = 33
    """kind of objects, key, object: an object that existed then."""


class ObjectEvent:
    """The type of a watch event."""

    ADDED: Final = 0
    UPDATED: Final = 1
    DELETED: Final = 2
    UNREADABLE: Final = 3


BEGIN_STEPS: Final = frozenset(
    {Note.TOLD, Note.STARTED, Note.RESUMED, Note.ANSWERED, Note.CONFIGURED, Note.MENDED, Note.LOST}
)

AnyNote = tuple[Any, ...]

SECOND: Final = 1_000_000
