"""The recording of one process, from its start to its end: notes, written by a thread to files."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.daemon.recording.recorded_objects import packed
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording_files import SUFFIX, FileWriter, Header, Note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path
    from random import Random

    from scheduler.clock import Clock
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.recording import RecordingLimits
    from scheduler.daemon.recording.recording_files import AnyNote

logger = logging.getLogger(__name__)


_FILES: Final = 8
"""Number of files that share the limit, because the oldest one is deleted as a whole."""
_SMALLEST_FILE: Final = 256 * 1024
_ENCODED_TOGETHER: Final = 200
_BATCH: Final = 20_000
"""Number of notes passed to the thread at a time, unless `flush` passes fewer."""
_MOST_WAITING: Final = 200_000
"""Maximum number of notes that wait for the thread; further notes are lost, and counted."""
_PAUSE_SECONDS: Final = 10.0
"""Pause after a file could not be created, because recording the state takes long in a large cluster."""
_encode = msgspec.msgpack.Encoder().encode
_AT_OBJECT: Final = {Note.TOLD: 5, Note.OBJECT: 3}


class _Batch(NamedTuple):
    """Notes on their way to the thread; some begin a file.

    Attributes:
        number: number of notes.
        encoded: encoded notes.
        notes: notes that are not encoded yet.
        begins_file: whether they begin the next file.
        lost: number of notes lost before.
    """

    number: int
    encoded: Sequence[bytes] = ()
    notes: Sequence[AnyNote] = ()
    begins_file: bool = False
    lost: int = 0


class RecordingWriter:
    """Writes notes to files, and deletes the oldest files.

    While the thread waits for the interpreter lock, each wait of the loop wakes it in vain, which costs more
    than the notes. So notes are encoded in the loop, and the thread runs seldom, to compress and to write.
    The state at the beginning of a file is large, and the thread encodes it.

    Notes after lost ones cannot be replayed before the next state. So they are dropped, and the next file
    skips a number, because it does not continue the one before.

    Args:
        room: folder and limits of the files.
        header: header of the first file.
        clock: monotonic time in seconds.

    Attributes:
        written_bytes: compressed bytes written since the start.
        lost: number of notes that could not be written.

    Raises:
        OSError: the folder is not writable.
    """

    def __init__(
        self, room: RecordingLimits, header: Header, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.written_bytes = self.lost = 0
        self._clock = clock
        self._wants_state = False
        self._not_before = 0.0  # after a failure to create a file
        self._room = room
        self._header = header
        room.folder.mkdir(parents=True, exist_ok=True)
        self._file: FileWriter | None = FileWriter(self._path(), header)
        self._pending: list[AnyNote] = []
        self._encoded: list[bytes] = []
        self._n_encoded = 0
        self._waiting: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._n_put = self._n_done = 0  # each written by one thread only
        self._has_gap = False  # since the beginning of the current file; used by the loop
        self._lost_before = 0  # lost notes at the beginning of the current file
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    @property
    def wants_state(self) -> bool:
        """Whether the state must be recorded as soon as possible, to begin the next file."""
        return self._wants_state and self._clock() >= self._not_before

    @wants_state.setter
    def wants_state(self, is_so: bool) -> None:
        self._wants_state = is_so

    def put(self, note: AnyNote) -> None:
        """Take a note."""
        self._pending.append(note)
        if len(self._pending) >= _ENCODED_TOGETHER:
            self._encode_pending()
            if self._n_encoded >= _BATCH:
                self._hand_over()

    def flush(self) -> None:
        """Pass the notes to the thread."""
        self._encode_pending()
        self._hand_over()

    def begin_file(self, state: Sequence[AnyNote]) -> None:
        """Begin the next file with the current state."""
        self.flush()
        self.wants_state = self._has_gap = False
        self._give(_Batch(len(state), notes=state, begins_file=True, lost=self.lost))

    def _encode_pending(self) -> None:
        notes, self._pending = self._pending, []
        if not notes:
            return
        try:
            self._encoded.append(_encoded(notes))
            self._n_encoded += len(notes)
        except Exception:  # noqa: BLE001  # the thread fails in the same way, and logs it
            self._hand_over()
            self._give(_Batch(len(notes), notes=notes))

    def _hand_over(self) -> None:
        encoded, self._encoded = self._encoded, []
        number, self._n_encoded = self._n_encoded, 0
        if not number:
            return
        if self._has_gap or self._n_put - self._n_done > _MOST_WAITING:
            self._has_gap = True
            self._lose(number, "notes are faster than the disk")
            return
        self._give(_Batch(number, encoded))

    def _give(self, batch: _Batch) -> None:
        self._n_put += batch.number
        self._waiting.put(batch)

    def close(self) -> None:
        """Write the remaining notes, and end; no note may be put afterwards."""
        self.flush()
        self._waiting.put(None)
        self._thread.join(timeout=10.0)

    def size(self) -> int:
        """Return the total size of all files, in bytes, including those of earlier runs."""
        return sum(_size(path) for path in self._files())

    # In the thread.

    def _run(self) -> None:
        while (batch := self._waiting.get()) is not None:
            try:
                self._write(batch)
            except OSError as error:
                self._fail(batch, str(error))
            except Exception:
                logger.exception("Recording failed")
                self._fail(batch, "internal error")
            finally:
                self._n_done += batch.number
        self._give_up_file()

    def _fail(self, batch: _Batch, why: str) -> None:
        file = self._file
        self._give_up_file()
        if batch.begins_file:
            self._not_before = self._clock() + _PAUSE_SECONDS
            if file is not None:  # without the state it cannot be replayed
                with suppress(OSError):
                    file.path.unlink(missing_ok=True)
        self._lose(batch.number, why)

    def _write(self, batch: _Batch) -> None:
        if batch.begins_file:
            self._next_file(batch.lost)
        if self._file is None:  # notes cannot be replayed before the next state
            self._lose(batch.number, "the file before could not be written")
            return
        before = self._file.size
        parts = range(0, len(batch.notes), _ENCODED_TOGETHER)
        self._file.put(*batch.encoded, *(_encoded(batch.notes[at : at + _ENCODED_TOGETHER]) for at in parts))
        self.written_bytes += self._file.size - before
        self._complained = False
        if self._file.size >= max(self._room.max_bytes // _FILES, _SMALLEST_FILE):
            self.wants_state = True

    def _next_file(self, lost: int) -> None:
        self._give_up_file()
        step = 1 if self.lost == self._lost_before else 2
        self._lost_before = lost
        self._header = msgspec.structs.replace(self._header, number=self._header.number + step)
        self._make_room()
        self._file = FileWriter(self._path(), self._header)

    def _give_up_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._lose(0, str(error))

    def _make_room(self) -> None:
        """Delete the oldest files until the limit allows one more."""
        files = sorted(self._files(), key=_time_of)
        sizes = {path: _size(path) for path in files}
        left = self._room.max_bytes - max(self._room.max_bytes // _FILES, _SMALLEST_FILE)
        oldest = time.time() - self._room.max_seconds
        for path in files:
            if sum(sizes.values()) <= left and _time_of(path) >= oldest:
                break
            path.unlink(missing_ok=True)
            del sizes[path]

    def _lose(self, number: int, why: str) -> None:
        self.lost += number
        self.wants_state = True
        if not self._complained:
            self._complained = True
            fields = {"folder": str(self._room.folder), "notes": number, "why": why}
            logger.error("Part of the recording is lost; it continues with the next file", extra=fields)

    def _files(self) -> list[Path]:
        return list(self._room.folder.glob(f"*{SUFFIX}"))

    def _path(self) -> Path:
        return self._room.folder / f"{self._header.run}-{self._header.number:04}{SUFFIX}"


def _encoded(notes: Sequence[AnyNote]) -> bytes:
    return _encode([packed_note(note) for note in notes])


def packed_note(note: AnyNote) -> Any:
    """Return a note as a recordable value."""
    at = _AT_OBJECT.get(note[0])
    if at is None or note[at] is None or isinstance(note[at], tuple):
        return note
    return (*note[:at], packed(note[at]), *note[at + 1 :])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted meanwhile
        return 0


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


_FLUSH_SECONDS: Final = 0.5
"""Maximum time between writes: at most this much is lost when the process is killed."""


class Recording:
    """Records a daemon's inputs and decisions in files.

    Args:
        room: folder and limits of the files.
        clock: the real time.
        random: source of the seed.
        max_in_unschedulable_seconds: the daemon's value.

    Attributes:
        recorder: the ports to build the daemon with.

    Raises:
        OSError: the folder is not writable.
    """

    def __init__(
        self, room: RecordingLimits, clock: Clock, random: Random, *, max_in_unschedulable_seconds: float
    ) -> None:
        header = Header.fresh(clock, random, max_in_unschedulable_seconds=max_in_unschedulable_seconds)
        self._tape = RecordingWriter(room, header)
        self.recorder = Recorder(clock, self._tape, header)

    @asynccontextmanager
    async def of(self, daemon: Daemon) -> AsyncIterator[None]:
        """Record a daemon that was built with these ports, until the block ends."""
        self.recorder.daemon = daemon
        for name, text, read in (
            (
                "custom_scheduler_recording_bytes",
                "Bytes of all files of the recording, including those of earlier runs.",
                self._tape.size,
            ),
            (
                "custom_scheduler_recording_written_bytes_total",
                "Bytes written to the recording, compressed.",
                lambda: self._tape.written_bytes,
            ),
            (
                "custom_scheduler_recording_lost_notes_total",
                "Notes that could not be written to the recording; the recording has a gap there.",
                lambda: self._tape.lost,
            ),
        ):
            daemon.metrics.families.read_gauges(name, text, (), partial(_number, read))
        flushing = asyncio.create_task(self._flush_now_and_then(), name="recording")
        try:
            yield
        finally:
            flushing.cancel()
            self.recorder.end()
            self._tape.close()

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self._tape.flush()


def _number(read: Callable[[], int]) -> list[tuple[tuple[str, ...], float]]:
    return [((), float(read()))]
