"""The third part of list-and-watch: for ever.

Every way a watch can end, and how long to wait before the next:

    in order, or silent          go on from the last version, at once
    cut off, server in trouble   go on from the last version, after a growing wait, or when an outage is over
    410, version too old         list again at once, and tell the difference
    server restored              likewise; after an outage it is asked whether its history is still the one that is known
    401, 403, 404                ask again soon, for a server that has just begun says that too; if it lasts, say once what
                                 to do about it and ask slowly
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from scheduler.client import wire
from scheduler.client.backoff import Backoff
from scheduler.client.connection import CONNECTION_LOST, NOT_CONNECTED, TIMEOUT
from scheduler.client.history import Change, has_happened, is_too_old, is_yet_to_come
from scheduler.client.store import Handler, Store
from scheduler.client.versions import read_versions
from scheduler.client.watch import list_into, watch
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.client.resources import Resource
    from scheduler.client.wire import WatchEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_SECONDS = (300, 600)
"""How long the server is asked to keep a watch open: a random time between, as client-go."""
REFUSED_SECONDS = 30.0
"""How often to ask again for what one may not read, or is not there, in the end."""
REFUSAL_TOLD_SECONDS = 4.0
"""How long a refusal lasts before it is said: until it has read its roles, a server refuses everything."""
STEADY_SECONDS = 60.0
"""A watch that lived this long was no failure, even if nothing happened in it."""
TOLD_AGAIN_SECONDS = 10.0
"""A wait so long is said, though a failure of that watch was said before."""
SHORT_SECONDS = 1.0
"""A watch that ended sooner is not followed by the next at once, whatever it brought."""
_RESTORED = "Restored"  # an `ApiError.reason` of our own
_REFUSALS_BEFORE_LIST = 5
"""After so many refusals to go on from a version, list again: perhaps it is the version."""


class ReflectorObserver(Protocol):
    """Who counts."""

    def listed(self, resource: Resource) -> None:
        """Count a full list that was completed; every one but the first is a relist."""
        ...

    def watch_ended(self, resource: Resource, reason: str) -> None:
        """Count the end of a watch: `closed`, `stalled`, `expired`, or `error`."""
        ...


class Followed(Protocol):
    """Who wants to know how far what is known can be trusted; what they are given is the resource's name."""

    def broke(self, kind: str) -> None:
        """Note that a kind is not followed any more."""
        ...

    def resumed(self, kind: str) -> None:
        """Note that a kind is followed again, from where that ended."""
        ...

    def complete(self, kind: str) -> None:
        """Note that everything of a kind is known."""
        ...

    def restored(self, kind: str) -> None:
        """Note that the server went back to an older state, and that what was known of a kind is to be listed anew."""
        ...


async def _sleep(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False


class Reflector(Generic[T]):
    """Keeps a store of one kind in step with the API server, for as long as `run` runs.

    Attributes:
        store: namespace/name -> the last version that could be read.
    """

    def __init__(
        self,
        connection: ApiConnection,
        resource: Resource,
        *,
        decode: Callable[[bytes], T],
        handler: Handler[T],
        random: Random,
        objects: dict[str, T] | None = None,
        next_version: Callable[[T, bytes, str], T | None] | None = None,
        observer: ReflectorObserver | None = None,
        pause: Callable[[float], Awaitable[bool]] = _sleep,
        followed: Followed | None = None,
        field_selector: str = "",
        optional: bool = False,
    ) -> None:
        """Prepare; nothing is asked before `run`.

        Args:
            connection: to the API server.
            resource: what to watch.
            decode: from an object's JSON; raises ObjectError.
            handler: told of every change, see `store.Handler`.
            random: for jitter.
            objects: where they are kept, for who is to see them before this is built; a new dictionary if not given.
            next_version: makes an object's next version without decoding it where it can, see `store.Store`.
            observer: counts lists and ends of watches.
            pause: waits for so many seconds, or until the server is back, and says whether it is: see `Outages.pause`.
            followed: is told when this is behind.
            field_selector: as in `status.phase!=Failed`.
            optional: a server that lacks the kind (404) is taken to have no objects of it, instead of
                holding up whoever waits for the first list.
        """
        self.resource = resource
        self._connection = connection
        self._random = random
        self._observer = observer
        self._pause = pause
        self._followed = followed
        self._optional = optional
        self._path = resource.path()
        self._selectors = {"fieldSelector": field_selector} if field_selector else {}
        self._store = Store(resource.kind, decode, handler, objects, next_version)
        self._version = ""  # up to where everything is known; none when a full list is needed
        self._highest = 0  # of the versions that were known
        self._streams_lists = True  # whether the server is believed to begin a watch with all objects
        self._is_listing = False  # whether the events of the watch that is open are of those
        self._is_in_doubt = False  # whether the server has another history now
        self._proof: Change | None = None  # that it has not, for the watch that is open
        self._last_deletion: Change | None = None  # since the last list
        self._backoff = Backoff(random, initial_seconds=0.8, maximum_seconds=30.0)
        self._synced = asyncio.Event()
        self._listed = asyncio.Event()
        self._progressed = False
        self._refusals = 0
        self._failures = 0  # since it worked
        self._refused_since: float | None = None  # the loop's time
        self._refused_with = 0  # the last status: another is a refusal of its own
        self._refusal_backoff = Backoff(random, initial_seconds=1.0, maximum_seconds=REFUSED_SECONDS)
        self._expired_in_vain = False  # and nothing came since
        self._lists_once = False  # plainly, because the server could not stream the list for now
        self._complained_of: int | None = None  # a status

    @property
    def store(self) -> Mapping[str, T]:
        return self._store.objects

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Key -> (uid, resourceVersion) of all that the watch has shown, what nobody can read included."""
        return self._store.versions

    @property
    def resource_version(self) -> str:
        """Up to where everything is known; "" before the first list and after an expiry."""
        return self._version

    @property
    def has_synced(self) -> bool:
        """Whether the first full list has been taken in."""
        return self._synced.is_set()

    @property
    def is_absent(self) -> bool:
        """Whether the API server says that it has no such kind, and no object of it is known."""
        is_refused = self._refused_since is not None and self._refused_with == HTTPStatus.NOT_FOUND
        return is_refused and not self._store.objects

    async def wait_synced(self) -> None:
        """Wait for the first full list."""
        await self._synced.wait()

    def is_outdated(self, key: str) -> bool:
        """Say whether nobody can read what came last of an object, so that the store has an earlier one."""
        return self._store.is_outdated(key)

    async def served_versions(self) -> Mapping[str, tuple[str, str]]:
        """Ask the API server for the versions of all there is, past the watch.

        Raises:
            ApiError: refused or cut off.
        """
        try:
            return await read_versions(self._connection, self._path, self._selectors)
        except ApiError as error:
            if self._optional and error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise

    def doubt(self) -> None:
        """Have the server asked, before a watch goes on, whether it still has the history that is known of this kind.

        To be called when it is away: it may come back restored from a backup.
        """
        self._is_in_doubt = True

    def read_anew(self) -> None:
        """Have the next `run` list everything and decode it again; none may be running.

        For a `decode` that keeps more than before. The store keeps what it has, and stays synced, meanwhile.
        """
        self._store.forget_versions()
        self._version = ""
        self._listed.clear()

    async def wait_listed(self) -> None:
        """Wait for the first full list since `read_anew`."""
        await self._listed.wait()

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            seconds = await self._watch_until_it_ends()
            if await self._pause(seconds):
                self._backoff.reset()

    async def _watch_until_it_ends(self) -> float:
        """Go on from what is known, once; return the seconds to wait before the next time."""
        loop = asyncio.get_running_loop()
        self._progressed = False
        started = loop.time()
        failure: ApiError | None = None
        try:
            await self._list_then_watch()
        except ApiError as error:
            failure = error
        lived = loop.time() - started
        if self._progressed or lived >= STEADY_SECONDS:
            self._backoff.reset()
            self._refusals = self._failures = 0
            at_once = lived >= SHORT_SECONDS
        else:
            at_once = False
        if failure is None:
            self._count_end("closed")
            return 0.0 if at_once else self._backoff.next_seconds()
        seconds = self._after(failure, at_once=at_once)
        if self._followed is not None and self._synced.is_set() and not self.is_absent:
            self._followed.broke(str(self.resource))
        return seconds

    async def _list_then_watch(self) -> None:
        """Take all objects in, if no version is known to go on from, then their changes until the watch ends in order.

        Raises:
            ApiError: refused, cut off or silent; what came before it is taken in.
        """
        self._proof = self._last_change() if self._version and self._is_in_doubt else None
        self._is_listing = not self._version and self._streams_lists
        if self._is_listing:
            params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._store.begin_replace()
        else:
            if not self._version:
                self._note_listed(await list_into(self._store, self._connection, self._path, self._selectors))
            params = {"resourceVersion": self._version}
        await watch(
            self._connection,
            self._path,
            {**self._selectors, **params},
            self._take,
            seconds=self._random.randint(*WATCH_SECONDS),
            opened=self._note_opened,
        )
        if self._is_listing:
            raise ApiError(0, CONNECTION_LOST, f"watch {self._path}: ended before all objects were sent")

    def _take(self, event: WatchEvent) -> None:
        identity, version = event.identity, event.identity.resource_version
        if event.type == wire.BOOKMARK:
            if self._is_listing and wire.ends_initial_events(event.object):
                self._is_listing = False
                self._store.end_replace()
                self._note_listed(version)
        elif event.type == wire.DELETED:
            self._store.delete(identity)
            self._last_deletion = Change(_number(version), identity.key, identity.uid, is_deletion=True)
        else:
            self._store.put(identity, event.object)
        # The versions of the objects a watch begins with are in no order, and before their end they are no progress.
        if not self._is_listing:
            self._version = version or self._version
            self._highest = max(self._highest, _number(version))
            self._note_progress()

    def _last_change(self) -> Change | None:
        """Return the last change that is known, having gone back to it: what came after it is not known to be nothing.

        None where there is none to ask for; then all is to be listed.
        """
        changes = [Change(_number(version), key, uid) for key, (uid, version) in self._store.versions.items()]
        if self._last_deletion is not None:
            changes.append(self._last_deletion)
        last = max(changes, default=None)
        if last is None or not last.version:
            self._version = ""
            return None
        self._version = str(min(_number(self._version), last.version))
        return last

    async def _note_opened(self) -> None:
        if self._proof is not None:
            # Asked once the watch is open: a server that is restored after this closes it.
            await self._prove(self._proof)
        self._refused_since = None
        if self._followed is not None and not self._is_listing:
            self._followed.resumed(str(self.resource))

    async def _prove(self, change: Change) -> None:
        """Make sure that the server's history is the one that is known up to a change.

        Raises:
            ApiError: it is not; or it cannot be told.
        """
        if not await has_happened(self._connection, self.resource, self._selectors, change):
            raise ApiError(HTTPStatus.GONE, _RESTORED, f"version {change.version} did something else")
        self._is_in_doubt = False

    def _note_restored(self, why: str) -> None:
        logger.warning(
            "The API server has gone back to an older state",
            extra={"resource": str(self.resource), "why": why},
        )
        self._highest = 0
        self._store.forget_versions()  # in another history they are versions of other things
        if self._followed is not None:
            self._followed.restored(str(self.resource))

    def _note_listed(self, version: str) -> None:
        """Go on from a list that was taken in.

        Raises:
            ApiError: it shows that the server has another history now, so that all is to be listed again.
        """
        if _number(version) < self._highest:
            raise ApiError(
                HTTPStatus.GONE, _RESTORED, f"it is at version {version}, and was at {self._highest}"
            )
        self._version = version
        self._highest = _number(version)
        self._is_in_doubt = False
        self._last_deletion = None
        self._synced.set()
        self._listed.set()
        if self._lists_once:
            self._streams_lists, self._lists_once = True, False
        if self._observer is not None:
            self._observer.listed(self.resource)
        if self._followed is not None:
            self._followed.complete(str(self.resource))
        self._note_progress()

    def _note_progress(self) -> None:
        self._progressed = True
        self._expired_in_vain = False
        self._refused_since = None
        self._complained_of = None

    def _after(self, error: ApiError, *, at_once: bool) -> float:
        """Decide from where to go on after an ended watch; return the seconds to wait."""
        # Where no version was asked for, the server's cache has not come to what it has stored itself.
        is_ahead = bool(self._version) and is_yet_to_come(error)
        if is_too_old(error) or is_ahead:
            self._count_end("expired")
            logger.info("Watch expired, listing again", extra=self._fields(error))
            if error.reason == _RESTORED or is_ahead:
                self._note_restored(str(error))
            self._version = ""
            again, self._expired_in_vain = self._expired_in_vain, True
            return self._backoff.next_seconds() if again else 0.0
        if error.status in {401, 403, 404}:
            self._count_end("error")
            return error.pause_seconds(self._after_refusal(error))
        if error.reason == TIMEOUT and error.status == 0:
            self._count_end("stalled")
            self.doubt()  # a watch from a version that is yet to come is silent too
            if not self._version:
                # A server that ignores `sendInitialEvents` never tells that they have ended.
                self._streams_lists = False
            logger.info("Watch fell silent", extra=self._fields(error))
            return 0.0 if at_once else self._backoff.next_seconds()
        self._count_end("error")
        seconds = error.pause_seconds(0.0 if at_once else self._backoff.next_seconds())
        # Each try of each kind in a short outage would say the same; and that there is nobody to ask is said once for all.
        is_news = error.reason != NOT_CONNECTED and (not self._failures or seconds >= TOLD_AGAIN_SECONDS)
        self._failures += 1
        logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "Watch failed",
            extra={**self._fields(error), "retry_seconds": round(seconds, 3)},
        )
        if not self._version and self._streams_lists:
            # As client-go: a server whose storage cannot stream lists says 500, also though it serves plain ones.
            self._streams_lists = error.status in {0, 429}
            self._lists_once = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if error.status not in {0, 429}:
            self._refusals += 1
            if self._refusals >= _REFUSALS_BEFORE_LIST:
                self._refusals = 0
                self._version = ""
        return seconds

    def _after_refusal(self, error: ApiError) -> float:
        now = asyncio.get_running_loop().time()
        if self._refused_since is None or error.status != self._refused_with:
            self._refused_since, self._refused_with = now, error.status
            self._refusal_backoff.reset()
        lasts = now - self._refused_since >= REFUSAL_TOLD_SECONDS
        if lasts:
            self._complain(error)
        if error.status == 404 and self._optional and (lasts or self.is_absent):
            self._store.begin_replace()
            self._store.end_replace()
            self._synced.set()
            self._listed.set()
            if self._followed is not None:
                self._followed.complete(str(self.resource))
        return self._refusal_backoff.next_seconds()

    def _complain(self, error: ApiError) -> None:
        """Say once, until it works again, what has to be done."""
        if self._complained_of == error.status:
            return
        self._complained_of = error.status
        if error.status == 404:
            logger.log(
                logging.INFO if self._optional else logging.ERROR,
                "The API server does not serve this kind; install or enable it",
                extra={**self._fields(error), "api_version": self.resource.api_version},
            )
            return
        fix = (
            "give the client valid credentials"
            if error.status == 401
            else f"allow the verbs list and watch on {self.resource.plural} in API group "
            f'"{self.resource.group}" in a ClusterRole bound to this client'
        )
        logger.error(
            "May not list and watch this kind",
            extra={**self._fields(error), "verbs": "list,watch", "fix": fix},
        )

    def _fields(self, error: ApiError) -> dict[str, object]:
        return {"resource": str(self.resource), "status": error.status, "error": str(error)}

    def _count_end(self, reason: str) -> None:
        if self._observer is not None:
            self._observer.watch_ended(self.resource, reason)


def _number(version: str) -> int:
    """Return a resourceVersion as the number that it is; 0 where it is none."""
    return int(version) if version.isascii() and version.isdigit() else 0
