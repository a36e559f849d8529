"""The local store of one kind, in sync with the API server, with one handler of changes.

No I/O and no waiting: a reflector feeds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from scheduler.errors import ObjectError
from scheduler.loop_work import loop_work

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import msgspec

    from scheduler.kube.client.wire import ObjectIdentity

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Handler(Protocol[T_contra]):
    """Is notified of every change of one kind, in the API server's order.

    Called synchronously, after the store has changed. An exception is logged with the object's key and does
    not propagate.
    """

    def on_add(self, obj: T_contra) -> None:
        """Handle an object that was not known."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Handle another version of the same object, with the same uid."""
        ...

    def on_delete(self, old: T_contra) -> None:
        """Handle a deletion; `old` is the last version passed to this handler."""
        ...

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Handle an unreadable version; called once for each such version.

        An earlier readable version stays in the store, without a call of `on_delete`: a bound pod continues
        to use its node whatever its latest version contains. It leaves the store when the object is deleted,
        or replaced by one with another uid.
        """
        ...


@runtime_checkable
class DatingHandler(Protocol):
    """A handler that needs the versions of deletions."""

    def on_delete_at(self, old: Any, version: str) -> None:
        """Handle a deletion as `on_delete` does; `version` is the resourceVersion of the deletion."""
        ...


@runtime_checkable
class TypedDecoder(Protocol[T_co]):
    """A decoder of objects that also takes an object that was decoded with its envelope.

    Attributes:
        struct: the type of such an object.
    """

    struct: type[msgspec.Struct]

    def __call__(self, raw: bytes, decoded: Any = None) -> T_co:
        """Return the object; raises ObjectError. `decoded` is a `struct`, or the result of `in_steps`."""
        ...

    def in_steps(self, raw: bytes, decoded: Any = None) -> Generator[None, None, T_co]:
        """Return the object as a call does, with all that takes long for a large object; raises ObjectError."""
        ...


class Store(Generic[T]):
    """All objects of one kind, by key.

    Args:
        kind: the kind of the objects.
        decode: decodes an object's JSON; raises ObjectError. It may be a `TypedDecoder`.
        handler: is notified of every change.
        objects: dictionary for the objects; None for a new one.
        next_version: derives the next version of an object from its JSON and resourceVersion, if that needs
            no full decoding; returns None if it does.
        version_of: returns (uid, resourceVersion) of a decoded object, whose texts are then stored once.

    Attributes:
        kind: the kind of the objects.
        objects: `namespace/name`, or `name` -> the last readable version. Do not change it.
    """

    def __init__(
        self,
        kind: str,
        decode: Callable[[bytes], T],
        handler: Handler[T],
        objects: dict[str, T] | None = None,
        next_version: Callable[[T, bytes, str], T | None] | None = None,
        version_of: Callable[[T], tuple[str, str]] | None = None,
    ) -> None:
        self.kind = kind
        self._decode = decode
        self._typed = decode if isinstance(decode, TypedDecoder) else None
        self._next_version = next_version
        self._version_of = version_of
        self._handler = handler
        self._dates = handler if isinstance(handler, DatingHandler) else None
        self._objects: dict[str, T] = {} if objects is None else objects
        # key -> (uid, resourceVersion) last seen, unreadable objects included
        self._versions: dict[str, tuple[str, str]] = {}
        self._unreadable: set[str] = set()  # keys of objects whose last version is unreadable
        self._unseen: set[str] = set()

    @property
    def objects(self) -> Mapping[str, T]:
        return self._objects

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Key -> (uid, resourceVersion) last seen, unreadable objects included."""
        return self._versions

    def is_outdated(self, key: str) -> bool:
        """Return whether the last version of an object is unreadable, so that the store has an earlier one."""
        return key in self._unreadable and key in self._objects

    def forget_versions(self) -> None:
        """Decode every object again when it next arrives, also in an unchanged version; the handler is notified of both."""
        self._versions = {key: (uid, "") for key, (uid, _) in self._versions.items()}

    def begin_replace(self) -> None:
        """Begin a full list: objects without a `put` before `end_replace` are deleted."""
        self._unseen = set(self._versions)

    def end_replace(self) -> None:
        """Delete the objects that were not in the full list."""
        for key in [key for key in self._versions if key in self._unseen]:
            self._remove(key)
        self._unseen = set()

    @loop_work("watch", lambda self, identity: f"{self.kind} {identity.key}")
    def put(self, identity: ObjectIdentity, raw: bytes, decoded: Any = None) -> None:
        """Store a version of an object; a known version changes nothing and notifies nobody.

        `decoded` is the object as the struct of a `TypedDecoder`, or the result of `decoded`; None if it was not decoded.
        """
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
            new = self._decoded(old, raw, identity.resource_version, decoded)
        except Exception as error:
            self._unreadable.add(key)
            if not isinstance(error, ObjectError):
                logger.exception("Decoder failed", extra={"kind": self.kind, "object": key})
                error = ObjectError(self.kind, key, "", f"decoder failed: {error!r}")
            self._tell(self._handler.on_undecodable, key, identity, error)
            return
        self._unreadable.discard(key)
        if self._version_of is not None and (same := self._version_of(new)) == version:
            self._versions[key] = same
        self._objects[key] = new
        if old is None:
            self._tell(self._handler.on_add, key, new)
        else:
            self._tell(self._handler.on_update, key, old, new)

    @loop_work("watch", lambda self, identity: f"{self.kind} {identity.key}")
    def decoded(
        self, identity: ObjectIdentity, raw: bytes, decoded: Any = None
    ) -> Generator[None, None, Any]:
        """Decode a large object in steps; return what `put` takes as `decoded`."""
        if self._typed is None:
            return decoded
        try:
            return (yield from self._typed.in_steps(raw, decoded))
        except Exception:
            logger.debug(
                "Large object is unreadable", extra={"kind": self.kind, "object": identity.key}, exc_info=True
            )
            return decoded  # `put` decodes it again, and reports the error

    def _decoded(self, old: T | None, raw: bytes, version: str, decoded: Any) -> T:
        if old is not None and self._next_version is not None:
            new = self._next_version(old, raw, version)
            if new is not None:
                return new
        return self._decode(raw) if self._typed is None else self._typed(raw, decoded)

    def delete(self, identity: ObjectIdentity) -> None:
        """Handle a deletion."""
        known = self._versions.get(identity.key)
        # With another uid, the known object is its replacement.
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
