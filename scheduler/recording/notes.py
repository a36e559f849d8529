"""What a recording consists of: notes in the order in which things happened.

A note is a tuple that begins with its kind. Those that begin a step have its time next, in microseconds since the
recording began; the others are what happened within the step before them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final


class Note(IntEnum):
    """The kinds of notes, with what follows in them."""

    TOLD = 0
    """us, kind of objects, word, key, object: the watch showed an object; the word is one of `Word`."""
    STARTED = 1
    """us, number, name: a task began; of tasks of one name the first in the recording is the first that begins again."""
    RESUMED = 2
    """us, number: a task went on that had waited."""
    ANSWERED = 3
    """us, number, error, value: what was asked outside was answered; within a task's step it is what it went on with."""
    CONFIGURED = 4
    """us, stage, YAML, folder: see `Steps.configured`."""
    MENDED = 5
    """us, what: see `Steps.mended`."""
    LOST = 6
    """us, number: so many notes are missing, 0 if nobody knows, and what follows does not go on from what was before."""

    OBSERVED = 16
    """ordinal: what was looked at for the nth time in this step was so."""
    READ = 17
    """ordinal, us: when the clock was read for the nth time in this step, it was long after the step's beginning."""
    ASKED = 18
    """number, what: somebody outside was asked something."""
    DECIDED = 19
    """pod uid, node, message, nominated node: see `Steps.decided`."""
    GAVE_UP = 20
    """number: nobody waits for the answer any more."""
    STOPPED = 21
    """An attempt was stopped for want of time: what follows does not go on from what was before."""

    NEEDED_TIME = 22
    """An attempt needed more time than a turn: see `Steps.needs_time`."""

    STATE = 32
    """us, state: how things stand where a file begins that is not a run's first; see `checkpoint`."""
    OBJECT = 33
    """kind of objects, key, object: one there was then."""


class Word:
    """What the watch said of an object."""

    ADDED: Final = 0
    UPDATED: Final = 1
    DELETED: Final = 2
    UNREADABLE: Final = 3


BEGIN_STEPS: Final = frozenset(
    {Note.TOLD, Note.STARTED, Note.RESUMED, Note.ANSWERED, Note.CONFIGURED, Note.MENDED, Note.LOST}
)

AnyNote = tuple[Any, ...]

SECOND: Final = 1_000_000
