"""Fields of features that are off: dropped on writes, unknown, or without some of their values.

A field that an object has already used is kept, so that a feature can be turned off while objects use it.

Source:
    kube-apiserver v1.36, pkg/api/pod/util.go, dropDisabledFields; pkg/registry/resource/resourceslice/strategy.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.tools.simulator.apimachinery.causes import Cause, not_supported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object


@dataclass(frozen=True, slots=True)
class DisabledFields:
    """The fields of a feature that is off, in the objects of one kind.

    Attributes:
        paths: the fields, by steps: `("spec", "devices[]", "taints")`; `[]` is every item of a list, `{}` every value of a
            map.
        values: the values that need the feature; empty if the whole fields need it.
        supported: all values of the fields, as messages name them.
        is_known: whether the server's version has the fields.
    """

    paths: Sequence[Sequence[str]]
    values: Sequence[str] = ()
    supported: Sequence[str] = ()
    is_known: bool = True

    def found(self, obj: Object) -> Iterator[tuple[Object, str, str]]:
        """Yield (the object around a field, the field's name, its path) for each field that is set."""
        for steps in self.paths:
            for holder, name, path in _fields(obj, steps, ""):
                if not self.values or holder[name] in self.values:
                    yield holder, name, path


def _fields(value: Any, steps: Sequence[str], path: str) -> Iterator[tuple[Object, str, str]]:
    if not isinstance(value, dict):
        return
    step = steps[0]
    name = step.rstrip("[]{}")
    if name not in value:
        return
    inside, where = value[name], f"{path}.{name}" if path else name
    if len(steps) == 1:
        yield value, name, where
    elif step.endswith("[]"):
        for index, item in enumerate(inside if isinstance(inside, list) else ()):
            yield from _fields(item, steps[1:], f"{where}[{index}]")
    elif step.endswith("{}"):
        for key, item in (inside if isinstance(inside, dict) else {}).items():
            yield from _fields(item, steps[1:], f"{where}.{key}")
    else:
        yield from _fields(inside, steps[1:], where)


def remove_unknown(obj: Object, disabled: Iterable[DisabledFields]) -> list[str]:
    """Remove the fields that the server's version does not have, and return their paths."""
    unknown = [found for fields in disabled if not fields.is_known for found in list(fields.found(obj))]
    for holder, name, _ in unknown:
        del holder[name]
    return [path for _, _, path in unknown]


def drop_disabled(obj: Object, old: Object | None, disabled: Iterable[DisabledFields]) -> list[Cause]:
    """Drop the fields of disabled features that the old object does not use.

    Returns:
        The errors of values that need such a feature.
    """
    causes: list[Cause] = []
    for fields in disabled:
        if not fields.is_known or (old is not None and any(True for _ in fields.found(old))):
            continue
        for holder, name, path in list(fields.found(obj)):
            if fields.values:
                causes.append(not_supported(path, holder[name], fields.supported))
            else:
                del holder[name]
    return causes
