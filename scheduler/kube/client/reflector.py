"""Keeps list-and-watch of one kind running, and detects a server that was restored from a backup.

A watch that resumes from a version of the lost history receives nothing until the server reaches that version
again, and then only later changes. The server does not report this, but it returns the objects at a version
on request.

Every way a watch can end, and how long to wait before the next:

    in order, or silent          resume from the last version, at once
    cut off, server in trouble   resume from the last version, after a growing wait, or when an outage is over
    410, version too old         list again at once, and report the differences
    server restored              list again at once; after an outage the server is asked whether its history
    is still
                                 the known one
    401, 403, 404                retry soon, because a server that has just started answers so too; if it
    lasts, log once
                                 how to fix it and retry slowly
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client import wire
from scheduler.kube.client.connection import CONNECTION_LOST, NOT_CONNECTED, TIMEOUT
from scheduler.kube.client.store import Handler, Store, TypedDecoder
from scheduler.kube.client.watch import list_into, listed, watch
from scheduler.kube.http.request import JSON
from scheduler.retries import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping
    from random import Random

    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.resources import Resource
    from scheduler.kube.client.wire import WatchEvent

logger = logging.getLogger(__name__)

_METADATA_ONLY = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


async def read_versions(
    connection: ApiConnection, path: str, selectors: Mapping[str, str]
) -> Mapping[str, tuple[str, str]]:
    """Return key -> (uid, resourceVersion) of all objects of a kind, read page by page.

    The server sends only the metadata, a fraction of a full list.

    Raises:
        ApiError: refused or cut off; 410 if the remaining pages expired meanwhile.
    """
    versions: dict[str, tuple[str, str]] = {}
    async for obj in listed(connection, path, selectors, _METADATA_ONLY):
        try:
            identity = wire.decode_identity(obj)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(0, CONNECTION_LOST, f"list {path}: unreadable answer: {error}") from error
        versions[identity.key] = (identity.uid, identity.resource_version)
    return versions


_SAID_OF_THE_FUTURE = ("Too large resource version", "required revision is a future revision")


class ObjectChange(NamedTuple):
    """The effect of one version: it created or updated an object, or deleted it.

    Attributes:
        version: the resourceVersion.
        key: key of the object.
        uid: UID of the object.
        is_deletion: whether the version deleted the object.
    """

    version: int
    key: str
    uid: str
    is_deletion: bool = False


def is_too_old(error: ApiError) -> bool:
    """Return whether the error says that the server no longer has a version."""
    return error.status == HTTPStatus.GONE


def is_yet_to_come(error: ApiError) -> bool:
    """Return whether the error says that the server has not reached a version."""
    return any(words in error.message for words in _SAID_OF_THE_FUTURE)


async def has_happened(
    connection: ApiConnection, resource: Resource, selectors: Mapping[str, str], change: ObjectChange
) -> bool:
    """Return whether a change is in the server's history; if it is, all earlier changes are too.

    Raises:
        ApiError: the server did not answer the question; also the errors of `is_too_old` and
            `is_yet_to_come`.
    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go, GetList.
    """
    namespace, _, name = change.key.rpartition("/")
    fields = ",".join(filter(None, (f"metadata.name={name}", selectors.get("fieldSelector"))))

    async def at(version: int) -> tuple[str, str] | None:
        exactly = {"resourceVersion": str(version), "resourceVersionMatch": "Exact", "fieldSelector": fields}
        return (await read_versions(connection, resource.path(namespace), exactly)).get(change.key)

    shown = await at(change.version)
    if not change.is_deletion:
        return shown == (change.uid, str(change.version))
    before = await at(change.version - 1)
    return before is not None and before[0] == change.uid and (shown is None or shown[0] != change.uid)


T = TypeVar("T")

WATCH_SECONDS = (300, 600)
"""How long the server is asked to keep a watch open: a random time between, as client-go."""
REFUSED_SECONDS = 30.0
"""Interval of retries, in the end, for a kind that may not be read or does not exist."""
REFUSAL_TOLD_SECONDS = 4.0
"""How long a refusal lasts before it is logged: until it has read its roles, a server refuses everything."""
STEADY_SECONDS = 60.0
"""A watch that lasted this long was no failure, even without events."""
TOLD_AGAIN_SECONDS = 10.0
"""A wait this long is logged, even if a failure of that watch was logged before."""
SHORT_SECONDS = 1.0
"""After a watch that ended sooner the next one does not start at once, even if there were events."""
_RESTORED = "Restored"  # an `ApiError.reason` of our own
_REFUSALS_BEFORE_LIST = 5
"""After this many refusals to resume from a version, list again: the version may be the cause."""


class ReflectorObserver(Protocol):
    """Counts lists and ends of watches."""

    def listed(self, resource: Resource) -> None:
        """Count a full list that was completed; every one but the first is a relist."""
        ...

    def watch_ended(self, resource: Resource, reason: str) -> None:
        """Count the end of a watch: `closed`, `stalled`, `expired`, or `error`."""
        ...


class SyncStateListener(Protocol):
    """Is notified how far the cache can be trusted; the argument is the resource's name."""

    def broke(self, kind: str) -> None:
        """Record that the watch of a kind ended."""
        ...

    def resumed(self, kind: str) -> None:
        """Record that the watch of a kind resumed from its last version."""
        ...

    def complete(self, kind: str) -> None:
        """Record that the cache of a kind is complete."""
        ...

    def restored(self, kind: str) -> None:
        """Record that the server went back to an older state, so that the kind must be listed again."""
        ...


async def _sleep(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False


class Reflector(Generic[T]):
    """Keeps a store of one kind in sync with the API server, while `run` runs.

    Attributes:
        store: namespace/name -> the last readable version.
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
        version_of: Callable[[T], tuple[str, str]] | None = None,
        observer: ReflectorObserver | None = None,
        pause: Callable[[float], Awaitable[bool]] = _sleep,
        state_listener: SyncStateListener | None = None,
        field_selector: str = "",
        label_selector: str = "",
        namespace: str = "",
        optional: bool = False,
    ) -> None:
        """Prepare; nothing is sent before `run`.

        Args:
            connection: to the API server.
            resource: the kind to watch.
            decode: decodes an object's JSON; raises ObjectError. A `TypedDecoder` takes objects of watches as structs.
            handler: is notified of every change, see `store.Handler`.
            random: for jitter.
            objects: dictionary for the store's objects, shared with readers; None for a new one.
            next_version: derives an object's next version without decoding it where possible, see
                `store.Store`.
            version_of: returns (uid, resourceVersion) of a decoded object, see `store.Store`.
            observer: counts lists and ends of watches.
            pause: waits for some seconds, or until the server is back, and returns whether it is: see
                `Outages.pause`.
            state_listener: is notified when this kind is stale.
            field_selector: as in `status.phase!=Failed`.
            label_selector: as in `app=web`.
            namespace: the only namespace that is read; "" for all.
            optional: if the server lacks the kind (404), treat it as a kind without objects, instead of
                blocking callers that wait for the first list.
        """
        self.resource = resource
        self._connection = connection
        self._random = random
        self._observer = observer
        self._pause = pause
        self._state_listener = state_listener
        self._optional = optional
        self._namespace = namespace
        self._path = resource.path(namespace)
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._selectors = {name: selector for name, selector in selectors.items() if selector}
        self._decode_event = (
            wire.typed_event_decoder(decode.struct)
            if isinstance(decode, TypedDecoder)
            else wire.decode_watch_event
        )
        self._store = Store(resource.kind, decode, handler, objects, next_version, version_of)
        self._version = ""  # version of the store; empty when a full list is needed
        self._highest = 0  # highest version seen
        self._streams_lists = True  # whether the server is expected to begin a watch with all objects
        self._is_listing = False  # whether the open watch is still sending these
        self._restore_suspected = False  # whether the server may have another history now
        # Change to check against the server's history, for the open watch.
        self._proof: ObjectChange | None = None
        self._last_deletion: ObjectChange | None = None  # since the last list
        self._backoff = Backoff(random, initial_seconds=0.8, maximum_seconds=30.0)
        self._synced = asyncio.Event()
        self._listed = asyncio.Event()
        self._progressed = False
        self._refusals = 0
        self._failures = 0  # since it worked
        self._refused_since: float | None = None  # the loop's time
        self._refused_with = 0  # the last status: another is a refusal of its own
        self._refusal_backoff = Backoff(random, initial_seconds=1.0, maximum_seconds=REFUSED_SECONDS)
        self._expired_in_vain = False  # and no event came since
        self._lists_once = False  # with a plain list, because the server could not stream it for now
        self._complained_of: int | None = None  # status that was logged

    @property
    def store(self) -> Mapping[str, T]:
        return self._store.objects

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Key -> (uid, resourceVersion) of all objects the watch has shown, unreadable ones included."""
        return self._store.versions

    @property
    def resource_version(self) -> str:
        """The version of the store; "" before the first list and after an expiry."""
        return self._version

    @property
    def has_synced(self) -> bool:
        """Whether the first full list is complete."""
        return self._synced.is_set()

    @property
    def is_absent(self) -> bool:
        """Whether the API server does not serve the kind, and no object of it is known."""
        is_refused = self._refused_since is not None and self._refused_with == HTTPStatus.NOT_FOUND
        return is_refused and not self._store.objects

    async def wait_synced(self) -> None:
        """Wait for the first full list."""
        await self._synced.wait()

    def is_outdated(self, key: str) -> bool:
        """Return whether the last version of an object is unreadable, so that the store has an earlier one."""
        return self._store.is_outdated(key)

    async def served_versions(self) -> Mapping[str, tuple[str, str]]:
        """Read the versions of all objects from the API server, bypassing the watch.

        Raises:
            ApiError: refused or cut off.
        """
        try:
            return await read_versions(self._connection, self._path, self._selectors)
        except ApiError as error:
            if self._optional and error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise

    def suspect_restore(self) -> None:
        """Verify, before a watch resumes, that the server still has the known history of this kind.

        Call this when the server becomes unavailable: it may be restored from a backup.
        """
        self._restore_suspected = True

    def relist(self) -> None:
        """Make the next `run` list everything and decode it again; call it while `run` is not running.

        For a `decode` that keeps more fields than before. Meanwhile the store keeps its objects, and stays
        synced.
        """
        self._store.forget_versions()
        self._version = ""
        self._listed.clear()

    async def wait_listed(self) -> None:
        """Wait for the first full list since `relist`."""
        await self._listed.wait()

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            seconds = await self._watch_until_it_ends()
            if await self._pause(seconds):
                self._backoff.reset()

    async def _watch_until_it_ends(self) -> float:
        """Watch once from the known version; return the seconds to wait before the next time."""
        loop = asyncio.get_running_loop()
        self._progressed = False
        started = loop.time()
        failure: ApiError | None = None
        try:
            await self._list_then_watch()
        except ApiError as error:
            failure = error.with_traceback(None)  # it refers to this frame, and to what was received
        lived = loop.time() - started
        if self._progressed or lived >= STEADY_SECONDS:
            self._backoff.reset()
            self._refusals = self._failures = 0
            at_once = lived >= SHORT_SECONDS
        else:
            at_once = False
        if failure is not None and failure.status == HTTPStatus.NOT_FOUND and await self._has_moved():
            self._count_end("error")
            return 0.0
        if failure is None:
            self._count_end("closed")
            return 0.0 if at_once else self._backoff.next_seconds()
        seconds = self._after(failure, at_once=at_once)
        if self._state_listener is not None and self._synced.is_set() and not self.is_absent:
            self._state_listener.broke(str(self.resource))
        return seconds

    async def _has_moved(self) -> bool:
        """Return whether the server serves the kind in another version, which is read from now on."""
        if not self.resource.versions:
            return False
        try:
            found = await self._connection.versions.find(self.resource)
        except ApiError:
            return False
        if found == self.resource:
            return False
        logger.info(
            "The API server serves this kind in another version",
            extra={"resource": str(found), "api_version": found.api_version},
        )
        self.resource, self._path = found, found.path(self._namespace)
        self.relist()
        return True

    async def _list_then_watch(self) -> None:
        """List all objects if no version is known, then watch their changes until the watch ends in order.

        Raises:
            ApiError: refused, cut off or silent; the store has all that was received before.
        """
        self._proof = self._last_change() if self._version and self._restore_suspected else None
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
            decode=self._decode_event,
            decode_large=self._decode_large,
            opened=self._note_opened,
        )
        if self._is_listing:
            raise ApiError(0, CONNECTION_LOST, f"watch {self._path}: ended before all objects were sent")

    def _decode_large(self, event: WatchEvent) -> Generator[None, None, WatchEvent]:
        if event.type not in {wire.ADDED, wire.MODIFIED}:
            return event
        decoded = yield from self._store.decoded(event.identity, event.object, event.decoded)
        return msgspec.structs.replace(event, decoded=decoded)

    def _take(self, event: WatchEvent) -> None:
        identity, version = event.identity, event.identity.resource_version
        if event.type == wire.BOOKMARK:
            if self._is_listing and wire.ends_initial_events(event.object):
                self._is_listing = False
                self._store.end_replace()
                self._note_listed(version)
        elif event.type == wire.DELETED:
            self._store.delete(identity)
            self._last_deletion = ObjectChange(_number(version), identity.key, identity.uid, is_deletion=True)
        else:
            self._store.put(identity, event.object, event.decoded)
        # The versions of the initial objects are in no order, so before their end there is no progress.
        if not self._is_listing:
            self._version = version or self._version
            self._highest = max(self._highest, _number(version))
            self._note_progress()

    def _last_change(self) -> ObjectChange | None:
        """Return the last known change, and reset the version to it: later versions may have had an effect.

        Returns None if no change is known; then everything must be listed.
        """
        newest, newest_key = 0, ""
        for key, (
            _,
            version,
        ) in self._store.versions.items():  # one object for each of them would take a tenth of a second
            number = _number(version)
            if number > newest:
                newest, newest_key = number, key
        last = self._last_deletion
        if newest > (0 if last is None else last.version):
            last = ObjectChange(newest, newest_key, self._store.versions[newest_key][0])
        if last is None or not last.version:
            self._version = ""
            return None
        self._version = str(min(_number(self._version), last.version))
        return last

    async def _note_opened(self) -> None:
        if self._proof is not None:
            # Asked once the watch is open: a server that is restored after this closes the watch.
            await self._prove(self._proof)
        self._refused_since = None
        if self._state_listener is not None and not self._is_listing:
            self._state_listener.resumed(str(self.resource))

    async def _prove(self, change: ObjectChange) -> None:
        """Verify that the server's history is the known one up to a change.

        Raises:
            ApiError: it is another history, or the server did not answer the question.
        """
        if not await has_happened(self._connection, self.resource, self._selectors, change):
            raise ApiError(HTTPStatus.GONE, _RESTORED, f"version {change.version} did something else")
        self._restore_suspected = False

    def _note_restored(self, why: str) -> None:
        logger.warning(
            "The API server has gone back to an older state",
            extra={"resource": str(self.resource), "why": why},
        )
        self._highest = 0
        self._store.forget_versions()  # in another history the same versions have other contents
        if self._state_listener is not None:
            self._state_listener.restored(str(self.resource))

    def _note_listed(self, version: str) -> None:
        """Continue from a complete list.

        Raises:
            ApiError: the list shows that the server has another history, so that everything must be listed
                again.
        """
        if _number(version) < self._highest:
            raise ApiError(
                HTTPStatus.GONE, _RESTORED, f"it is at version {version}, and was at {self._highest}"
            )
        self._version = version
        self._highest = _number(version)
        self._restore_suspected = False
        self._last_deletion = None
        self._synced.set()
        self._listed.set()
        if self._lists_once:
            self._streams_lists, self._lists_once = True, False
        if self._observer is not None:
            self._observer.listed(self.resource)
        if self._state_listener is not None:
            self._state_listener.complete(str(self.resource))
        self._note_progress()

    def _note_progress(self) -> None:
        self._progressed = True
        self._expired_in_vain = False
        self._refused_since = None
        self._complained_of = None

    def _after(self, error: ApiError, *, at_once: bool) -> float:
        """Decide where to resume after a watch ended; return the seconds to wait."""
        # Without a requested version, the error means that the server's cache lags behind its storage.
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
            self.suspect_restore()  # a watch from a future version is silent too
            if not self._version:
                # A server that ignores `sendInitialEvents` never sends their end.
                self._streams_lists = False
            logger.info("Watch fell silent", extra=self._fields(error))
            return 0.0 if at_once else self._backoff.next_seconds()
        self._count_end("error")
        seconds = error.pause_seconds(0.0 if at_once else self._backoff.next_seconds())
        # All tries of all kinds in a short outage fail alike; an unreachable server is logged once elsewhere.
        is_news = error.reason != NOT_CONNECTED and (not self._failures or seconds >= TOLD_AGAIN_SECONDS)
        self._failures += 1
        logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "Watch failed",
            extra={**self._fields(error), "retry_seconds": round(seconds, 3)},
        )
        if not self._version and self._streams_lists:
            # As client-go: a server whose storage cannot stream lists answers 500 although it serves plain
            # lists.
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
            if self._state_listener is not None:
                self._state_listener.complete(str(self.resource))
        return self._refusal_backoff.next_seconds()

    def _complain(self, error: ApiError) -> None:
        """Log once, until the watch works again, how to fix a refusal."""
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
            f'"{self.resource.group}" in '
            + (f"a Role in namespace {self._namespace}" if self._namespace else "a ClusterRole")
            + " bound to this client"
        )
        logger.error(
            "No permission to list and watch this kind",
            extra={**self._fields(error), "verbs": "list,watch", "fix": fix},
        )

    def _fields(self, error: ApiError) -> dict[str, object]:
        return {"resource": str(self.resource), "status": error.status, "error": str(error)}

    def _count_end(self, reason: str) -> None:
        if self._observer is not None:
            self._observer.watch_ended(self.resource, reason)


def _number(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not one."""
    return int(version) if version.isascii() and version.isdigit() else 0
