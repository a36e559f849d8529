"""The objects of one kind that plugins read, by name and by namespace."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = Mapping[str, Any]

_NONE: Final[Mapping[str, Object]] = MappingProxyType({})


class Objects(Mapping[str, Object]):
    """All objects of a kind, `namespace/name` -> object; it follows what happens to them."""

    __slots__ = ("_by_namespace", "_changes", "_objects", "_versions")

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._versions: dict[str, int] = {}  # namespace -> its last change; those without objects have none
        self._changes = 0

    def in_namespace(self, namespace: str) -> Mapping[str, Object]:
        """Return those of one namespace, `namespace/name` -> object; "" has what lives in no namespace."""
        return self._by_namespace.get(namespace, _NONE)

    def version(self, namespace: str) -> int:
        """Return a number that is another whenever the objects of a namespace changed; 0 where there are none."""
        return self._versions.get(namespace, 0)

    def __getitem__(self, key: str) -> Object:
        return self._objects[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


class ObjectStore(Objects, MutableMapping[str, Object]):
    """The same for who keeps it up to date."""

    __slots__ = ()

    def __setitem__(self, key: str, found: Object) -> None:
        namespace = _namespace(key)
        self._objects[key] = found
        self._by_namespace.setdefault(namespace, {})[key] = found
        self._changes += 1
        self._versions[namespace] = self._changes

    def __delitem__(self, key: str) -> None:
        del self._objects[key]
        namespace = _namespace(key)
        left = self._by_namespace[namespace]
        del left[key]
        self._changes += 1
        if left:
            self._versions[namespace] = self._changes
        else:
            del self._by_namespace[namespace], self._versions[namespace]


def _namespace(key: str) -> str:
    return key.rpartition("/")[0]
