"""Pods and nodes with the labels, taints and names that a plugin looks for, which the samples do not have.

These values come from its code: the texts and numbers in it, its arguments, and the keys of labels and annotations that it
reads when it runs.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.testing.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.framework import Plugin
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?" + _VALUE.pattern)
_ORDINARY: Final = ("yes", "true", "0", "1")
"""Values to try for every key."""
_MOST_WORDS: Final = 20
_MOST_PAIRS: Final = 60


class _Noting(dict[str, str]):
    """Labels or annotations that note which keys are read."""

    def __init__(self, values: Any, asked: dict[str, None]) -> None:
        super().__init__(values)
        self._asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self._asked[key] = None
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self._asked[key] = None
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._asked[str(key)] = None
        return super().__contains__(key)


class Probes:
    """The values that a plugin looks for, and objects that have them.

    Args:
        plugin: the plugin.
        pods: pods to run it on.
        run: runs it on a pod, with every node.
    """

    def __init__(self, plugin: Plugin, pods: Iterable[PodInfo], run: Callable[[PodInfo], object]) -> None:
        asked: dict[str, None] = {}
        for each in pods:
            metadata = each.pod.metadata
            noting = msgspec.structs.replace(
                metadata,
                labels=_Noting(metadata.labels, asked),
                annotations=_Noting(metadata.annotations, asked),
            )
            run(type(each)(msgspec.structs.replace(each.pod, metadata=noting), each.raw))
        found = list(dict.fromkeys(_found_in(plugin)))
        words = [word for word in found if isinstance(word, str) and _KEY.fullmatch(word)][:_MOST_WORDS]
        self._numbers = [number for number in found if isinstance(number, int)][:_MOST_WORDS]
        self._keys = list(dict.fromkeys([*asked, *(word for word in words if "/" in word)]))
        self._names = list(dict.fromkeys([*self._keys, *words]))
        values = (word for word in words if _VALUE.fullmatch(word))
        self._values = list(dict.fromkeys([*values, *_ORDINARY, *map(str, self._numbers)]))
        # The first keys with the first values come first, so that a long list leaves no key out.
        places = itertools.product(range(len(self._keys)), range(len(self._values)))
        first = sorted(places, key=sum)[:_MOST_PAIRS]
        self._pairs = [(self._keys[key], self._values[value]) for key, value in first]

    def nodes(self, like: NodeObject) -> list[NodeObject]:
        """Return a node for each value, with every name as a label and an annotation, and one for each taint.

        Args:
            like: a node whose labels and annotations they have too.
        """
        made: list[NodeObject] = []
        for value in self._values:
            named = dict.fromkeys(self._names, value)
            labels, annotations = {**like.labels, **named}, {**like.annotations, **named}
            made.append(node(f"probe-{len(made)}", labels=labels, annotations=annotations))
        for key, value in self._pairs[:_MOST_WORDS]:
            taint = {"key": key, "value": value, "effect": "NoSchedule"}
            made.append(node(f"probe-{len(made)}", labels=like.labels, taints=[taint]))
        return made

    def pods(self) -> Iterator[PodInfo]:
        """Yield pods that differ in one field each from a pod without requests; the field is their name."""
        for fields in self._fields():
            [(field, value)] = fields.items()
            yield pod(f"with {field} {msgspec.json.encode(value).decode()}", **fields)

    def _fields(self) -> Iterator[dict[str, Any]]:
        for field in ("labels", "annotations", "node_selector"):
            yield from ({field: {key: value}} for key, value in self._pairs)
            yield from ({field: dict.fromkeys(self._keys, value)} for value in self._values)
        for key, value in self._pairs:
            yield {"tolerations": [{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}]}
        for name in self._names:
            yield {"requests": {name: 1}}
            for field in ("namespace", "priority_class_name", "service_account_name", "runtime_class_name"):
                yield {field: name}
            yield {"containers": [{"name": name, "image": name}]}
        for number in self._numbers:
            yield from ({"priority": number + more} for more in (-1, 0, 1))
            yield {"cpu": str(abs(number))}
        yield from ({"host_network": True}, {"priority": 1}, {"priority": 2_000_000_000})


def _found_in(plugin: Plugin) -> Iterator[object]:
    """Yield texts and numbers: those of its instance, of its class, and of the module."""
    yield from _constants_in(getattr(plugin, "__dict__", {}))
    for base in type(plugin).__mro__:
        if not base.__module__.startswith("scheduler."):
            yield from _constants_in(vars(base))
    yield from _constants_in(vars(sys.modules[type(plugin).__module__]))


def _constants_in(names: dict[str, Any] | Any) -> Iterator[object]:
    for name, value in list(names.items()):
        if not name.startswith("__") or name == "__init__":
            yield from _constants_of(value)


def _constants_of(value: object) -> Iterator[object]:
    if isinstance(value, str | int):
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from _constants_of(each)
    elif isinstance(value, dict):
        yield from (each for each in (*value, *value.values()) if isinstance(each, str | int))
    elif isinstance(value, msgspec.Struct):
        yield from _constants_of(msgspec.structs.astuple(value))
    elif isinstance(value, CodeType):
        for each in value.co_consts:
            yield from _constants_of(each)
    else:
        yield from _constants_of_code(_function_in(value))


def _function_in(value: object) -> object:
    if isinstance(value, property):
        return value.fget
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _constants_of_code(function: object) -> Iterator[object]:
    if isinstance(function, FunctionType):
        yield from _constants_of(getattr(inspect.unwrap(function), "__code__", None))
