"""The files of a recording and their notes: names, format, and how they are read, also with a truncated end.

A note is a tuple that begins with its kind. A note that begins a step has the step's time next, in
microseconds since the recording began. All other notes belong to the step before them.

One run of the scheduler writes a sequence of files, each of which can be replayed by itself. A file begins
with a line of JSON, its header. A zstandard stream follows; each of its blocks is complete when it is
written. It contains batches of notes in msgpack, each after its length in four bytes.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
import zstandard

from scheduler.errors import SchedulerError
from scheduler.files import open_regular
from scheduler.version import VERSION as VERSION_OF_SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from random import Random

    from scheduler.clock import Clock


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
    REPAIRED = 5
    """us, what: see `Ports.repaired`."""
    LOST = 6
    """us, number: this many notes are missing, 0 if unknown; the following state does not continue the one before."""
    BUCKETS = 7
    """us, in use, releasing: the buckets of this replica, see `Ports.buckets`."""

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
    {
        Note.TOLD,
        Note.STARTED,
        Note.RESUMED,
        Note.ANSWERED,
        Note.CONFIGURED,
        Note.REPAIRED,
        Note.LOST,
        Note.BUCKETS,
    }
)

AnyNote = tuple[Any, ...]

SECOND: Final = 1_000_000


FORMAT: Final = "custom-scheduler recording"
VERSION: Final = 2
SUFFIX: Final = ".rec"
_LENGTH: Final = struct.Struct(">I")
_LONGEST_HEADER: Final = 4 * 2**20
_CHUNK: Final = 2**20
_encode_header = msgspec.json.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder().decode


class RecordingError(SchedulerError):
    """A file that is not a recording, or that this version cannot read."""


class Header(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The header of a file.

    Attributes:
        format: marks the file as a recording.
        version: version of the format.
        by: version of custom-scheduler that wrote the file.
        run: name of the run, common to its files.
        number: number of the file within its run, from 1.
        base: monotonic seconds at the beginning of the run.
        wall: seconds since 1970 at the beginning of the run.
        seed: seed of the tie breaking at the beginning of the run.
        max_in_unschedulable_seconds: time after which an unschedulable pod is retried without any event.
    """

    format: str = FORMAT
    version: int = VERSION
    by: str
    run: str
    number: int
    base: float
    wall: float
    seed: int
    max_in_unschedulable_seconds: float = 300.0

    @classmethod
    def fresh(cls, clock: Clock, random: Random, *, max_in_unschedulable_seconds: float = 300.0) -> Header:
        """Return the header of the first file of a run that begins now."""
        now = clock.utc_now()
        return cls(
            by=VERSION_OF_SCHEDULER,
            run=f"{now:%Y%m%dT%H%M%SZ}-{random.getrandbits(32):08x}",
            number=1,
            base=clock.monotonic(),
            wall=now.timestamp(),
            seed=random.getrandbits(62),
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )


class FileWriter:
    """Writes one file.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.size = 0
        self._file: BinaryIO = path.open("xb")
        try:
            self._write(_encode_header(header) + b"\n")
        except OSError:
            path.unlink(missing_ok=True)  # without a header it is no recording
            with suppress(OSError):
                self._file.close()
            raise
        self._compressor = zstandard.ZstdCompressor(level=1).compressobj()

    def put(self, *batches: bytes) -> None:
        """Write batches of notes; they are in the file when this returns."""
        if not batches:
            return
        compressed = self._compressor.compress(
            b"".join(_LENGTH.pack(len(batch)) + batch for batch in batches)
        )
        self._write(compressed + self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def close(self) -> None:
        """End the file."""
        try:
            self._write(self._compressor.flush())
        finally:
            self._file.close()

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self.size += len(data)


class FileReader:
    """Reads one file.

    Attributes:
        path: path of the file.
        header: header of the file.
        is_torn: whether the file is truncated, as after a killed process; known once all batches are read.

    Raises:
        RecordingError: the file is not a recording, or has a later version.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_torn = False
        with os.fdopen(open_regular(path), "rb") as file:
            line = file.readline(_LONGEST_HEADER)
        self.header = _header(path, line)
        self._begin = len(line)

    def batches(self) -> Iterator[Sequence[list[Any]]]:
        """Yield the complete batches of notes."""
        pending = bytearray()
        for chunk in self._chunks():
            pending += chunk
            at = 0
            while len(pending) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(pending, at)
                end = at + _LENGTH.size + length
                if len(pending) < end:
                    break
                try:
                    yield _decode_batch(pending[at + _LENGTH.size : end])
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self.is_torn = True
                    return
                at = end
            del pending[:at]
        self.is_torn = self.is_torn or bool(pending)

    def _chunks(self) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        with os.fdopen(open_regular(self.path), "rb") as file:
            file.seek(self._begin)
            while chunk := file.read(_CHUNK):
                try:
                    yield decompressor.decompress(chunk)
                except zstandard.ZstdError:
                    self.is_torn = True
                    return
        self.is_torn = not decompressor.eof


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        header = {}
    if header.get("format") != FORMAT:
        raise RecordingError(f"{path}: not a recording of custom-scheduler")
    version = header.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise RecordingError(
            f"{path}: written by {header.get('by')} in version {version} of the format; this version reads up to {VERSION}: "
            "read it with a custom-scheduler at least as new"
        )
    try:
        return msgspec.convert(header, Header)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{path}: header: {error}") from error
