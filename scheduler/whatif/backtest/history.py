"""What happened to a cluster while it was recorded, in one line of time: objects that came, changed and went.

Runs of the scheduler in one folder follow each other by the wall clock. What happened while nobody listened is found when the
next run lists everything, and dated there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler.app.daemon import SCHEDULING
from scheduler.app.watches import NODE_KIND, POD_KIND
from scheduler.errors import ObjectError
from scheduler.recording.files import RecordingError
from scheduler.recording.notes import BEGIN_STEPS, SECOND, Note, Word
from scheduler.recording.objects import unpacked_node, unpacked_object, unpacked_pod
from scheduler.whatif.backtest.pace import Pace
from scheduler.whatif.replay.script import stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from scheduler.objects.pod import PodInfo
    from scheduler.whatif.replay.script import Stretch

_PREEMPTED: Final = "patch "
"""What is asked of the API server of each victim before it is deleted."""
_IN_FORCE: Final = "in force"


@dataclass(frozen=True, slots=True)
class Happening:
    """An object came, changed or went.

    Attributes:
        at: seconds since the beginning.
        kind: of objects.
        key: `namespace/name`, or `name`.
        obj: as it is from now on: a PodInfo, a NodeObject, or JSON; None if it is gone.
    """

    at: float
    kind: str
    key: str
    obj: Any


@dataclass(kw_only=True)
class History:
    """What was recorded, from when the scheduler began to place pods.

    Attributes:
        source: the folder.
        began: when.
        seconds: how long it lasted.
        there: what was there when it began: other kinds, nodes, and pods last.
        happenings: what came then, in order.
        configuration: that was in force when it began, as YAML.
        folder: what relative paths in it start from.
        reconfigured: how often another came into force later.
        preempted: uid -> when, of pods that were sent away for others.
        preemptions: how often room was made for a pod by that.
        messages: uid -> why it was not placed, as it was decided last.
        decision_seconds: what a decision took of the scheduler's time, with all that it did beside it, on average.
        asked: uid -> when it was asked to bind the pod, the last time.
        stretches: runs, and parts of runs, without a gap.
        unheard_seconds: how long nobody listened, between them.
        torn: names of files whose end is missing.
        unreadable: how many versions of objects could not be understood.
    """

    source: str
    began: datetime
    there: list[Happening] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    seconds: float = 0.0
    configuration: str = ""
    folder: str = "."
    reconfigured: int = 0
    preempted: dict[str, float] = field(default_factory=dict)
    preemptions: int = 0
    messages: dict[str, str] = field(default_factory=dict)
    decision_seconds: float = 0.0
    asked: dict[str, float] = field(default_factory=dict)
    stretches: int = 0
    unheard_seconds: float = 0.0
    torn: list[str] = field(default_factory=list)
    unreadable: int = 0


def read_history(folder: Path) -> History:
    """Read a recording, as far as it is whole.

    Raises:
        RecordingError: there is none, it cannot be read, or no pod was placed in it.
        OSError: likewise.
    """
    return history_of(stretches(folder), str(folder))


def history_of(found: Sequence[Stretch], source: str) -> History:
    """Bring stretches of a recording into one line of time.

    Raises:
        RecordingError: the scheduler never began to place pods in it.
    """
    reader = HistoryReader(source)
    for stretch in found:
        reader.read(stretch.header.wall, stretch.notes())
        reader.torn += [path.name for path in stretch.torn]
    return reader.history()


class HistoryReader:
    """Takes notes in and knows how things stand.

    Attributes:
        torn: names of files whose end is missing.
    """

    def __init__(self, source: str) -> None:
        self.torn: list[str] = []
        self._source = source
        self._known: dict[str, dict[str, Any]] = {}  # kind -> key -> object
        self._wall = 0.0  # seconds since 1970 of the last note
        self._history: History | None = None
        self._pace = Pace()
        self._began = 0.0
        self._configuration: tuple[str, str] = ("", ".")
        self._listed: set[tuple[str, str]] | None = (
            None  # what a list has shown so far; None where changes are told
        )
        self._pods: dict[str, str] = {}  # key -> uid, of pods that are there
        self._stretches = self._unreadable = 0
        self._unheard = 0.0
        self._is_deaf = self._by_state = False

    def history(self) -> History:
        """Return all of it.

        Raises:
            RecordingError: the scheduler never began to place pods.
        """
        if self._history is None:
            raise RecordingError(
                f"{self._source}: nothing to backtest: the scheduler did not place pods while it was recorded"
            )
        history = self._history
        history.seconds = self._wall - self._began
        history.decision_seconds, history.asked = self._pace.decision_seconds, self._pace.asked
        history.torn, history.unreadable = self.torn, self._unreadable
        history.stretches, history.unheard_seconds = self._stretches, self._unheard
        return history

    def read(self, base: float, notes: Iterable[list[Any]]) -> None:
        """Take the notes of a run in, which began at `base`, or of a part of it."""
        self._stretches += 1
        self._begin_list(by_state=False)
        self._is_deaf = self._history is not None
        is_lost = False
        for note in notes:
            kind = note[0]
            if is_lost and kind != Note.STATE:
                continue  # it does not go on from what was before
            if kind in BEGIN_STEPS or kind == Note.STATE:
                self._go_on(max(self._wall, base + note[1] / SECOND))
            if kind == Note.LOST:
                is_lost = self._is_deaf = True
                self._stretches += 1
            elif kind == Note.STATE:
                if self._listed is not None or is_lost:
                    self._configuration = note[2]["configuration"], note[2]["folder"]
                    self._begin_list(by_state=True)
                    is_lost = False
            elif kind == Note.OBJECT:
                if self._by_state:
                    self._tell(note[1], Word.ADDED, note[2], note[3])
            else:
                self._work(kind, note)

    def _begin_list(self, *, by_state: bool) -> None:
        self._listed, self._by_state = set(), by_state

    def _go_on(self, at: float) -> None:
        """Let time pass; nobody listened to what happened meanwhile where the one who did had to begin anew."""
        if self._is_deaf:
            self._unheard += at - self._wall
        self._wall, self._is_deaf = at, False

    def _work(self, kind: int, note: list[Any]) -> None:
        """Take a note in; what was there is told when the scheduler goes to work, or all that stood in a state."""
        begins = kind == Note.STARTED and note[3] == SCHEDULING
        if self._by_state or begins:
            self._end_list()
            self._by_state = False
        if begins and self._history is None:
            self._begin()
        self._take(kind, note)

    def _take(self, kind: int, note: list[Any]) -> None:
        history = self._history
        if history is not None:
            self._pace.take(note, self._wall - self._began, self._pods)
        match kind:
            case Note.TOLD:
                _, _, of, word, key, said = note
                self._tell(of, word, key, said)
            case Note.CONFIGURED:
                if history is not None:
                    history.reconfigured += note[2] == _IN_FORCE and note[3] != self._configuration[0]
                self._configuration = note[3], note[4]
            case Note.ASKED if history is not None and note[2].startswith(_PREEMPTED):
                uid = self._pods.get(note[2].removeprefix(_PREEMPTED))
                if uid is not None:
                    history.preempted.setdefault(uid, self._wall - self._began)
            case Note.DECIDED if history is not None:
                if not note[2]:
                    history.preemptions += bool(note[4])
                    history.messages[note[1]] = note[3]

    def _tell(self, kind: str, word: int, key: str, said: Any) -> None:
        known = self._known.setdefault(kind, {})
        if word == Word.DELETED:
            if key in known:
                self._gone(kind, key)
            return
        obj = None if word == Word.UNREADABLE else _unpacked_or_none(kind, said)
        if self._listed is not None:
            self._listed.add((kind, key))
        if obj is None:
            self._unreadable += 1  # what was known of it holds
            return
        if kind == POD_KIND and not self._is_alive(key, known.get(key), obj):
            return
        known[key] = obj
        self._note(kind, key, obj)

    def _is_alive(self, key: str, before: PodInfo | None, pod: PodInfo) -> bool:
        """Take note of which pod has a name, and say whether it has not ended."""
        if before is not None and (before.uid != pod.uid or pod.is_terminal):
            self._gone(POD_KIND, key)
        if pod.is_terminal:
            return False
        self._pods[key] = pod.uid
        return True

    def _gone(self, kind: str, key: str) -> None:
        del self._known[kind][key]
        self._note(kind, key, None)
        if kind == POD_KIND:
            self._pods.pop(key, None)

    def _note(self, kind: str, key: str, obj: Any) -> None:
        if self._history is not None:
            self._history.happenings.append(Happening(self._wall - self._began, kind, key, obj))

    def _end_list(self) -> None:
        """Take note that all that is there was told: what was known and was not told is gone."""
        if self._listed is None:
            return
        for kind, known in self._known.items():
            for key in [key for key in known if (kind, key) not in self._listed]:
                self._gone(kind, key)
        self._listed = None

    def _begin(self) -> None:
        """Take note that the scheduler goes to work."""
        self._began = self._wall
        history = self._history = History(source=self._source, began=datetime.fromtimestamp(self._began, UTC))
        history.configuration, history.folder = self._configuration
        kinds = sorted(self._known, key=lambda kind: (kind == POD_KIND, kind == NODE_KIND, kind))
        history.there = [
            Happening(0.0, kind, key, obj) for kind in kinds for key, obj in self._known[kind].items()
        ]


def _unpacked_or_none(kind: str, said: Any) -> Any:
    """Return an object that was written down; None if it cannot be understood."""
    try:
        if kind == POD_KIND:
            return unpacked_pod(said)
        return unpacked_node(said) if kind == NODE_KIND else unpacked_object(said, kind)
    except ObjectError:
        return None
