"""The objects of one kind that plugins read: by name, by namespace, by index, and as typed values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from scheduler.objects.decode import typed_object

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

Object = Mapping[str, Any]
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_REMEMBERED_CHANGES = 4096


@dataclass(frozen=True, eq=False)
class Index(Generic[S]):
    """An index of objects, defined once as a constant; every store that uses it keeps it up to date.

    Attributes:
        struct: the type that `of` reads.
        of: returns the values that find an object. It may not raise.
    """

    struct: type[S]
    of: Callable[[S], Iterable[Hashable]]


class Objects(Mapping[str, Object]):
    """All objects of a kind, `namespace/name` -> object, kept up to date.

    An object has the state last received from the API server, or an assumed state: see `ObjectStore`.

    Attributes:
        changes: the number of changes so far.
    """

    __slots__ = (
        "_assumed",
        "_by_index",
        "_by_namespace",
        "_changed",
        "_companions",
        "_objects",
        "_typed",
        "_versions",
        "changes",
    )

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._assumed: dict[str, Object | None] = {}  # key -> the object as received from the API server
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._versions: dict[str, int] = {}  # namespace -> its last change, for namespaces with objects
        self.changes = 0
        self._changed: deque[str] = deque(maxlen=_REMEMBERED_CHANGES)  # the keys of the last changes
        self._typed: dict[type[msgspec.Struct], dict[str, Any]] = {}
        self._by_index: dict[Index[Any], _Found] = {}
        self._companions: dict[type, Any] = {}

    def changed_since(self, changes: int) -> AbstractSet[str] | None:
        """Return the keys changed since `changes` changes, in their order; None if these are no longer recorded."""
        missed = self.changes - changes
        if missed > len(self._changed):
            return None
        return dict.fromkeys(self._changed[-place] for place in range(missed, 0, -1)).keys()

    def in_namespace(self, namespace: str) -> Mapping[str, Object]:
        """Return the objects of one namespace, `namespace/name` -> object; "" for cluster-scoped objects."""
        return self._by_namespace.get(namespace, _NONE)

    def version(self, namespace: str) -> int:
        """Return a number that changes with the objects of a namespace; 0 without objects."""
        return self._versions.get(namespace, 0)

    @property
    def versions(self) -> Mapping[str, int]:
        """Namespace -> `version`, for all namespaces with objects."""
        return self._versions

    def typed(self, struct: type[S], key: str) -> S | None:
        """Return an object converted to a type, or None if there is no object; the result is cached.

        Raises:
            ObjectError: a field has another type.
        """
        known = self._typed.setdefault(struct, {})
        value: S | None = known.get(key)
        if value is None and key in self._objects:
            value = known[key] = typed_object(self._objects[key], struct)
        return value

    def convert(self, struct: type[S], keys: Iterable[str]) -> Generator[None, None, None]:
        """Convert objects in steps, so that `typed` finds them in its cache; converted objects need no step.

        Raises:
            ObjectError: as `typed`.
        """
        for key in keys:
            if key not in self._typed.setdefault(struct, {}) and key in self._objects:
                self.typed(struct, key)
                yield

    def indexed(self, index: Index[S], value: Hashable) -> Mapping[str, S]:
        """Return the objects with a value in an index, `namespace/name` -> typed object.

        Raises:
            ObjectError: an object cannot be converted to the type of the index.
        """
        found = self._by_index.get(index)
        if found is None or found.unread:
            for _ in self.read(index):
                pass
            found = self._by_index[index]
        return found.by_value.get(value, _NONE)

    def read(self, index: Index[S]) -> Generator[None, None, None]:
        """Build an index in steps, so that `indexed` need not build it; objects may change between steps.

        Raises:
            ObjectError: as `indexed`.
        """
        found = self._by_index.get(index)
        if found is None:
            found = self._by_index[index] = _Found(index, self._objects)
        while found.unread:
            key = found.unread[-1]
            if key in self._objects and not found.knows(key):
                found.add(key, self.typed(index.struct, key))
            found.unread.pop()
            yield

    def companion(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the only value of a type that belongs to these objects; the first call creates it.

        Plugins of all profiles, and of later configurations, share derived data in this way.
        """
        if kind not in self._companions:
            self._companions[kind] = make()
        found: T = self._companions[kind]
        return found

    def __getitem__(self, key: str) -> Object:
        return self._objects[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def _show(self, key: str, obj: Object | None) -> None:
        """Replace the visible object, or remove it."""
        namespace = key.rpartition("/")[0]
        for known in self._typed.values():
            known.pop(key, None)
        for found in self._by_index.values():
            found.remove(key)
        self.changes += 1
        self._changed.append(key)
        if obj is not None:
            self._objects[key] = obj
            self._by_namespace.setdefault(namespace, {})[key] = obj
            self._versions[namespace] = self.changes
            for index, found in self._by_index.items():
                found.add(key, self.typed(index.struct, key))
            return
        del self._objects[key]
        left = self._by_namespace[namespace]
        del left[key]
        if left:
            self._versions[namespace] = self.changes
        else:
            del self._by_namespace[namespace], self._versions[namespace]


class ObjectStore(Objects, MutableMapping[str, Object]):
    """The writable `Objects`: assigned items are objects from the API server.

    An object may be assumed: it is visible in the state after a write of this scheduler. The assumption ends when the
    API server sends a newer version, or when the object is restored. An older version, from a delayed watch, does not
    end it.

    Source:
        kube-scheduler v1.36, scheduler/util/assumecache.
    """

    __slots__ = ()

    @property
    def is_assuming(self) -> bool:
        """Whether any object is assumed."""
        return bool(self._assumed)

    def assume(self, key: str, obj: Object) -> None:
        """Assume an object; its version is the one before the write, or the one that the write returned.

        If the API server already sent this object or a newer version, that version stays.
        """
        shown_by_server = self._assumed[key] if key in self._assumed else self._objects.get(key)
        if shown_by_server is not None and (
            obj == shown_by_server or resource_version(obj) < resource_version(shown_by_server)
        ):
            self.restore(key)
            return
        self._assumed.setdefault(key, self._objects.get(key))
        self._show(key, obj)

    def from_server(self, key: str) -> Object | None:
        """Return an object as received from the API server, even if another state is assumed; None if it is absent."""
        return self._assumed[key] if key in self._assumed else self._objects.get(key)

    def restore(self, key: str) -> None:
        """End the assumption of an object; does nothing if it is not assumed."""
        if key in self._assumed:
            shown_by_server = self._assumed.pop(key)
            self._show(key, shown_by_server)

    def __setitem__(self, key: str, obj: Object) -> None:
        if key in self._assumed:
            assumed = self._objects[key]
            if resource_version(obj) <= resource_version(assumed) and obj != assumed:
                self._assumed[key] = obj
                return
            del self._assumed[key]
        self._show(key, obj)

    def __delitem__(self, key: str) -> None:
        if key not in self._objects:
            raise KeyError(key)
        self._assumed.pop(key, None)
        self._show(key, None)


class _Found:
    """The contents of one index.

    Args:
        index: the index.
        keys: the keys of the existing objects.

    Attributes:
        unread: the keys that are not indexed yet, in reverse order; an object that changes meanwhile is indexed then.
    """

    __slots__ = ("_values", "by_value", "index", "unread")

    def __init__(self, index: Index[Any], keys: Iterable[str]) -> None:
        self.index = index
        self.unread = [*keys][::-1]
        self.by_value: dict[Hashable, dict[str, Any]] = {}
        self._values: dict[str, tuple[Hashable, ...]] = {}  # key -> its values in the index

    def knows(self, key: str) -> bool:
        return key in self._values

    def add(self, key: str, obj: Any) -> None:
        values = self._values[key] = tuple(self.index.of(obj))
        for value in values:
            self.by_value.setdefault(value, {})[key] = obj

    def remove(self, key: str) -> None:
        for value in self._values.pop(key, ()):
            alike = self.by_value[value]
            del alike[key]
            if not alike:
                del self.by_value[value]


def object_key(obj: Object) -> str:
    """Return the key of an object: `namespace/name`, or `name` for cluster-scoped objects."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def resource_version(obj: Object) -> int:
    """Return the resourceVersion as a number, which the API server guarantees; 0 if it is absent.

    Source:
        Kubernetes v1.35, KEP-5504, comparable resource versions.
    """
    version = obj.get("metadata", {}).get("resourceVersion", "")
    return int(version) if version.isascii() and version.isdigit() else 0
