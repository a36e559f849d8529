"""The changes of a cluster while it was recorded, in the order of time, and the speed of the scheduler.

Runs of the scheduler in one folder follow one another by wall clock. A change while no scheduler recorded is found in the
next run's lists, and dated there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler.daemon.app.daemon import SCHEDULING
from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.daemon.recording.recorded_objects import unpacked_node, unpacked_object, unpacked_pod
from scheduler.daemon.recording.recording_files import BEGIN_STEPS, SECOND, Note, ObjectEvent, RecordingError
from scheduler.errors import ObjectError
from scheduler.tools.whatif.replay.script import stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.replay.script import Stretch

_BIND: Final = "bind "


class Pace:
    """Measures the entries of a recording, in their order.

    Between two attempts the event loop runs other tasks. So the time from the step that decides to the next step of the
    same task is the time of the decision with the work that belongs to it.

    Attributes:
        asked: uid -> time of the last Binding request for the pod.
    """

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        self._task: int | None = None
        self._since = 0.0
        self._decided = 0  # since the task was resumed
        self._decisions = 0
        self._seconds = 0.0

    @property
    def decision_seconds(self) -> float:
        """Average time of a decision; 0 if there was none."""
        return self._seconds / self._decisions if self._decisions else 0.0

    def take(self, note: list[Any], at: float, uids: Mapping[str, str]) -> None:
        """Read an entry, `at` seconds after the beginning; `uids` maps the keys of existing pods to uids."""
        match note[0]:
            case Note.STARTED if note[3] == SCHEDULING:
                self._task, self._decided = note[2], 0
            case Note.RESUMED if note[2] == self._task:
                if self._decided:
                    self._seconds += at - self._since
                    self._decisions += self._decided
                    self._decided = 0
            case Note.DECIDED:
                self._since = at
                self._decided += 1
            case Note.ASKED if note[2].startswith(_BIND):
                uid = uids.get(note[2].removeprefix(_BIND).partition(" ")[0])
                if uid is not None:
                    self.asked[uid] = at


_PREEMPTED: Final = "patch "
"""Beginning of the external call for each victim, before its deletion."""
_IN_FORCE: Final = "active"


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """An object was added, changed or deleted.

    Attributes:
        at: seconds since the beginning.
        kind: kind of the object.
        key: `namespace/name`, or `name`.
        obj: the object from now on: a PodInfo, a NodeObject, or JSON; None if it was deleted.
    """

    at: float
    kind: str
    key: str
    obj: Any


@dataclass(kw_only=True)
class RecordedHistory:
    """The content of a recording, from the time when the scheduler began to place pods.

    Attributes:
        source: the folder.
        began: the time of the beginning.
        seconds: the duration.
        there: the objects at the beginning: other kinds, then nodes, then pods.
        happenings: the later changes, in order.
        configuration: the active configuration at the beginning, as YAML.
        folder: the folder of its relative paths.
        reconfigured: how often another configuration became active later.
        preempted: uid -> time, of preempted pods.
        preemptions: number of decisions that preempted pods.
        messages: uid -> why the pod was not placed, from its last decision.
        decision_seconds: average time that a decision took of the scheduler's event loop, with the work that belongs to it.
        asked: uid -> time of the last Binding request for the pod.
        stretches: number of runs, and parts of runs, without a gap.
        unheard_seconds: duration of the gaps between them.
        torn: names of files whose end is missing.
        unreadable: number of versions of objects that could not be decoded.
    """

    source: str
    began: datetime
    there: list[RecordedChange] = field(default_factory=list)
    happenings: list[RecordedChange] = field(default_factory=list)
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


def read_history(folder: Path) -> RecordedHistory:
    """Read a recording, as far as its files are complete.

    Raises:
        RecordingError: there is no recording, it cannot be read, or no pod was placed in it.
        OSError: a file cannot be read.
    """
    return history_of(stretches(folder), str(folder))


def history_of(found: Sequence[Stretch], source: str) -> RecordedHistory:
    """Combine segments of a recording into one history.

    Raises:
        RecordingError: the scheduler never began to place pods.
    """
    reader = HistoryReader(source)
    for stretch in found:
        reader.read(stretch.header.wall, stretch.notes())
        reader.torn += [path.name for path in stretch.torn]
    return reader.history()


class HistoryReader:
    """Reads entries and tracks the state of the cluster.

    Attributes:
        torn: names of files whose end is missing.
    """

    def __init__(self, source: str) -> None:
        self.torn: list[str] = []
        self._source = source
        self._known: dict[str, dict[str, Any]] = {}  # kind -> key -> object
        self._wall = 0.0  # seconds since 1970 of the last entry
        self._history: RecordedHistory | None = None
        self._pace = Pace()
        self._began = 0.0
        self._configuration: tuple[str, str] = ("", ".")
        # Objects of the running list; None while changes are recorded.
        self._listed: set[tuple[str, str]] | None = None
        self._pods: dict[str, str] = {}  # key -> uid, of existing pods
        self._stretches = self._unreadable = 0
        self._unheard = 0.0
        self._is_deaf = self._by_state = False

    def history(self) -> RecordedHistory:
        """Return the history that was read.

        Raises:
            RecordingError: the scheduler never began to place pods.
        """
        if self._history is None:
            raise RecordingError(
                f"{self._source}: nothing to backtest: the recorded scheduler placed no pods"
            )
        history = self._history
        history.seconds = self._wall - self._began
        history.decision_seconds, history.asked = self._pace.decision_seconds, self._pace.asked
        history.torn, history.unreadable = self.torn, self._unreadable
        history.stretches, history.unheard_seconds = self._stretches, self._unheard
        return history

    def read(self, base: float, notes: Iterable[list[Any]]) -> None:
        """Read the entries of a run that began at `base`, or of a part of it."""
        self._stretches += 1
        self._begin_list(by_state=False)
        self._is_deaf = self._history is not None
        is_lost = False
        for note in notes:
            kind = note[0]
            if is_lost and kind != Note.STATE:
                continue  # it does not continue the state before the gap
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
                    self._tell(note[1], ObjectEvent.ADDED, note[2], note[3])
            else:
                self._work(kind, note)

    def _begin_list(self, *, by_state: bool) -> None:
        self._listed, self._by_state = set(), by_state

    def _go_on(self, at: float) -> None:
        """Advance the time; after a gap, count the time in which no scheduler recorded."""
        if self._is_deaf:
            self._unheard += at - self._wall
        self._wall, self._is_deaf = at, False

    def _work(self, kind: int, note: list[Any]) -> None:
        """Read an entry; the objects at the beginning are complete when scheduling begins, or after a saved state."""
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
                _, _, of, word, key, encoded = note
                self._tell(of, word, key, encoded)
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

    def _tell(self, kind: str, word: int, key: str, encoded: Any) -> None:
        known = self._known.setdefault(kind, {})
        if word == ObjectEvent.DELETED:
            if key in known:
                self._gone(kind, key)
            return
        obj = None if word == ObjectEvent.UNREADABLE else _unpacked_or_none(kind, encoded)
        if self._listed is not None:
            self._listed.add((kind, key))
        if obj is None:
            self._unreadable += 1  # the version before stays
            return
        if kind == POD_KIND and not self._is_alive(key, known.get(key), obj):
            return
        known[key] = obj
        self._note(kind, key, obj)

    def _is_alive(self, key: str, before: PodInfo | None, pod: PodInfo) -> bool:
        """Track the pod of a name; return whether the pod has not ended."""
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
            self._history.happenings.append(RecordedChange(self._wall - self._began, kind, key, obj))

    def _end_list(self) -> None:
        """End a list: an object that was known and is not in the list was deleted."""
        if self._listed is None:
            return
        for kind, known in self._known.items():
            for key in [key for key in known if (kind, key) not in self._listed]:
                self._gone(kind, key)
        self._listed = None

    def _begin(self) -> None:
        """Begin the history when scheduling begins."""
        self._began = self._wall
        history = self._history = RecordedHistory(
            source=self._source, began=datetime.fromtimestamp(self._began, UTC)
        )
        history.configuration, history.folder = self._configuration
        kinds = sorted(self._known, key=lambda kind: (kind == POD_KIND, kind == NODE_KIND, kind))
        history.there = [
            RecordedChange(0.0, kind, key, obj) for kind in kinds for key, obj in self._known[kind].items()
        ]


def _unpacked_or_none(kind: str, encoded: Any) -> Any:
    """Return a recorded object; None if it cannot be decoded."""
    try:
        if kind == POD_KIND:
            return unpacked_pod(encoded)
        return unpacked_node(encoded) if kind == NODE_KIND else unpacked_object(encoded, kind)
    except ObjectError:
        return None
