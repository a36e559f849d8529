"""The objects of one kind that plugins read: by name, by namespace, by what an index says of them, and as typed values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
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
    """A way to find objects; made once, as a constant, and kept up to date by every store that is asked by it.

    Attributes:
        struct: the type that `of` reads.
        of: the values under which an object is found. It may not raise.
    """

    struct: type[S]
    of: Callable[[S], Iterable[Hashable]]


class Objects(Mapping[str, Object]):
    """All objects of a kind, `namespace/name` -> object; it follows what happens to them.

    An object is shown as the API server last showed it, or as one of ours is about to write it: see `ObjectStore`.
    """

    __slots__ = (
        "_assumed",
        "_by_index",
        "_by_namespace",
        "_changed",
        "_changes",
        "_companions",
        "_objects",
        "_typed",
        "_versions",
    )

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._assumed: dict[str, Object | None] = {}  # key -> the object as the API server shows it
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._versions: dict[str, int] = {}  # namespace -> its last change; those without objects have none
        self._changes = 0
        self._changed: deque[str] = deque(maxlen=_REMEMBERED_CHANGES)  # the keys of the last changes
        self._typed: dict[type[msgspec.Struct], dict[str, Any]] = {}
        self._by_index: dict[Index[Any], _Found] = {}
        self._companions: dict[type, Any] = {}

    @property
    def changes(self) -> int:
        """How many changes there were so far."""
        return self._changes

    def changed_since(self, changes: int) -> set[str] | None:
        """Return the keys of what changed since there were so many; None if that is too long ago to tell."""
        missed = self._changes - changes
        if missed > len(self._changed):
            return None
        return {self._changed[-place] for place in range(1, missed + 1)}

    def in_namespace(self, namespace: str) -> Mapping[str, Object]:
        """Return those of one namespace, `namespace/name` -> object; "" has what lives in no namespace."""
        return self._by_namespace.get(namespace, _NONE)

    def version(self, namespace: str) -> int:
        """Return a number that is another whenever the objects of a namespace changed; 0 where there are none."""
        return self._versions.get(namespace, 0)

    @property
    def versions(self) -> Mapping[str, int]:
        """The same of all namespaces that have objects."""
        return self._versions

    def typed(self, struct: type[S], key: str) -> S | None:
        """Return an object as a value of a type, None if there is none; it is converted once.

        Raises:
            ObjectError: a field is of another type.
        """
        known = self._typed.setdefault(struct, {})
        value: S | None = known.get(key)
        if value is None and key in self._objects:
            value = known[key] = typed_object(self._objects[key], struct)
        return value

    def convert(self, struct: type[S], keys: Iterable[str]) -> Generator[None, None, None]:
        """Convert some objects in steps, so that `typed` need not: no step where all are converted.

        Raises:
            ObjectError: as `typed`.
        """
        for key in keys:
            if key not in self._typed.setdefault(struct, {}) and key in self._objects:
                self.typed(struct, key)
                yield

    def indexed(self, index: Index[S], value: Hashable) -> Mapping[str, S]:
        """Return the objects that an index finds under a value, `namespace/name` -> typed object.

        Raises:
            ObjectError: an object cannot be read as the index wants it.
        """
        found = self._by_index.get(index)
        if found is None or found.unread:
            for _ in self.read(index):
                pass
            found = self._by_index[index]
        return found.by_value.get(value, _NONE)

    def read(self, index: Index[S]) -> Generator[None, None, None]:
        """Have an index read all objects, in steps, so that `indexed` need not; the objects may change between two steps.

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
        """Return the one value of a type that is kept beside these objects; it is made when somebody first asks.

        So the plugins of all profiles, and those of the configuration after this one, share what they know of them.
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
        """Show an object from now on, or none."""
        namespace = _namespace(key)
        for known in self._typed.values():
            known.pop(key, None)
        for found in self._by_index.values():
            found.remove(key)
        self._changes += 1
        self._changed.append(key)
        if obj is not None:
            self._objects[key] = obj
            self._by_namespace.setdefault(namespace, {})[key] = obj
            self._versions[namespace] = self._changes
            for index, found in self._by_index.items():
                found.add(key, self.typed(index.struct, key))
            return
        del self._objects[key]
        left = self._by_namespace[namespace]
        del left[key]
        if left:
            self._versions[namespace] = self._changes
        else:
            del self._by_namespace[namespace], self._versions[namespace]


class ObjectStore(Objects, MutableMapping[str, Object]):
    """The same for who keeps it up to date: items are what the API server shows.

    An object may be assumed: shown as it will be when a write of ours has arrived. That ends with a version from the API
    server that is newer than the assumed one, or when it is restored. An older one, from a watch that runs behind, does
    not end it.

    Source:
        kube-scheduler v1.36, scheduler/util/assumecache.
    """

    __slots__ = ()

    @property
    def is_assuming(self) -> bool:
        """Whether any object is shown as one of ours is about to write it."""
        return bool(self._assumed)

    def assume(self, key: str, obj: Object) -> None:
        """Show an object as it will be; it carries the version that it was made from, or that the write gave it.

        Where the API server has shown it already, or a newer version in the meantime, that one stays.
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
        """Return an object as the API server shows it, whether or not one of ours is shown instead; None if it is not."""
        return self._assumed[key] if key in self._assumed else self._objects.get(key)

    def restore(self, key: str) -> None:
        """Show an object as the API server does again; nothing where it was not assumed, or is no longer."""
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
    """What one index finds.

    Args:
        index: the index.
        keys: of the objects that there are when it begins.

    Attributes:
        unread: the keys that it has not got to yet, the next one last; an object that changes meanwhile is added then.
    """

    __slots__ = ("_values", "by_value", "index", "unread")

    def __init__(self, index: Index[Any], keys: Iterable[str]) -> None:
        self.index = index
        self.unread = [*keys][::-1]
        self.by_value: dict[Hashable, dict[str, Any]] = {}
        self._values: dict[str, tuple[Hashable, ...]] = {}  # key -> the values it is found under

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
    """Return the key of an object: `namespace/name`, or `name` where it lives in no namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _namespace(key: str) -> str:
    return key.rpartition("/")[0]


def resource_version(obj: Object) -> int:
    """Return the version as a number, which the API server guarantees it to be; 0 where there is none.

    Source:
        Kubernetes v1.35, KEP-5504, comparable resource versions.
    """
    version = obj.get("metadata", {}).get("resourceVersion", "")
    return int(version) if version.isascii() and version.isdigit() else 0
