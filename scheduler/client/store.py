"""What is known of one kind, kept in step with the API server and told to one handler.

No I/O and no waiting: a reflector feeds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from scheduler.errors import ObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.client.wire import ObjectIdentity

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Handler(Protocol[T_contra]):
    """Who is told of every change of one kind, in the order of the API server's.

    Called synchronously, after the store has changed. An exception is logged with the object's key and goes
    no further.
    """

    def on_add(self, obj: T_contra) -> None:
        """Note an object that was not known."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Note another version of the same object: the uid is the same."""
        ...

    def on_delete(self, old: T_contra) -> None:
        """Note that an object is gone; `old` is what was last told of it."""
        ...

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Note a version that nobody can read; called once for each such version.

        An earlier version that could be read stays in the store, with no call of `on_delete`: a bound pod
        goes on using its node whatever its latest version says. It leaves when the object is deleted, or
        replaced by one of another uid.
        """
        ...


@runtime_checkable
class DatingHandler(Protocol):
    """A handler that is told when things were deleted."""

    def on_delete_at(self, old: Any, version: str) -> None:
        """Note as `on_delete` that an object is gone, and the version of the cluster that came with it."""
        ...


class Store(Generic[T]):
    """All objects of one kind, by key.

    Args:
        kind: what they are.
        decode: from an object's JSON; raises ObjectError.
        handler: is told of every change.
        objects: where they are kept; a new dictionary if not given.
        next_version: makes the next version of an object, of its JSON and resourceVersion, where it need not be decoded
            for that; None where it must be.

    Attributes:
        kind: what they are.
        objects: `namespace/name`, or `name` -> the last version that could be read. Not to be changed.
    """

    def __init__(
        self,
        kind: str,
        decode: Callable[[bytes], T],
        handler: Handler[T],
        objects: dict[str, T] | None = None,
        next_version: Callable[[T, bytes, str], T | None] | None = None,
    ) -> None:
        self.kind = kind
        self._decode = decode
        self._next_version = next_version
        self._handler = handler
        self._dates = handler if isinstance(handler, DatingHandler) else None
        self._objects: dict[str, T] = {} if objects is None else objects
        # key -> (uid, resourceVersion) last seen, of objects that cannot be read too
        self._versions: dict[str, tuple[str, str]] = {}
        self._unreadable: set[str] = set()  # keys of objects that came last as nobody can read
        self._unseen: set[str] = set()

    @property
    def objects(self) -> Mapping[str, T]:
        return self._objects

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Key -> (uid, resourceVersion) as seen last, of objects that nobody can read too."""
        return self._versions

    def is_outdated(self, key: str) -> bool:
        """Say whether nobody can read what came last of an object, so that an earlier one is here."""
        return key in self._unreadable and key in self._objects

    def forget_versions(self) -> None:
        """Have every object decoded again that comes, the version that is known too; the handler is told of both."""
        self._versions = {key: (uid, "") for key, (uid, _) in self._versions.items()}

    def begin_replace(self) -> None:
        """Begin a full list: what `put` does not name before `end_replace` is gone."""
        self._unseen = set(self._versions)

    def end_replace(self) -> None:
        """Delete what the full list did not name."""
        for key in [key for key in self._versions if key in self._unseen]:
            self._remove(key)
        self._unseen = set()

    def put(self, identity: ObjectIdentity, raw: bytes) -> None:
        """Take a version of an object; one that is known already changes nothing and is told to nobody."""
        key = identity.key
        self._unseen.discard(key)
        version = (identity.uid, identity.resource_version)
        known = self._versions.get(key)
        if known == version and identity.resource_version:
            return
        if known is not None and known[0] != identity.uid:
            self._remove(key)
        self._versions[key] = version
        old = self._objects.get(key)
        try:
            new = self._decoded(old, raw, identity.resource_version)
        except Exception as error:
            self._unreadable.add(key)
            if not isinstance(error, ObjectError):
                logger.exception("Decoder failed", extra={"kind": self.kind, "object": key})
                error = ObjectError(self.kind, key, "", f"decoder failed: {error!r}")
            self._tell(self._handler.on_undecodable, key, identity, error)
            return
        self._unreadable.discard(key)
        self._objects[key] = new
        if old is None:
            self._tell(self._handler.on_add, key, new)
        else:
            self._tell(self._handler.on_update, key, old, new)

    def _decoded(self, old: T | None, raw: bytes, version: str) -> T:
        if old is not None and self._next_version is not None:
            new = self._next_version(old, raw, version)
            if new is not None:
                return new
        return self._decode(raw)

    def delete(self, identity: ObjectIdentity) -> None:
        """Take note that an object is gone."""
        known = self._versions.get(identity.key)
        # Of another uid: its successor is known already.
        if known is not None and known[0] == identity.uid:
            self._remove(identity.key, identity.resource_version)

    def _remove(self, key: str, version: str = "") -> None:
        del self._versions[key]
        self._unseen.discard(key)
        self._unreadable.discard(key)
        if key in self._objects and self._dates is not None and version:
            self._tell(self._dates.on_delete_at, key, self._objects.pop(key), version)
        elif key in self._objects:
            self._tell(self._handler.on_delete, key, self._objects.pop(key))

    def _tell(self, method: Callable[..., None], key: str, *arguments: object) -> None:
        try:
            method(*arguments)
        except Exception:
            fields = {"kind": self.kind, "object": key, "handler": method.__name__}
            logger.exception("Event handler failed", extra=fields)
