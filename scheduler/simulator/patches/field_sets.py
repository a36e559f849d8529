"""Sets of fields in the format of metadata.managedFields (FieldsV1), and operations on them.

A path is a tuple of steps: `f:NAME` for a field, `k:{...}` for the item of a list with those keys, `v:VALUE` for
an item of a set. A set has the paths of leaves, of maps and lists that are owned as a whole or are empty, and of
items of lists.

Source:
    Kubernetes v1.36, sigs.k8s.io/structured-merge-diff, fieldpath and merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.simulator.apimachinery.objects import json_text
from scheduler.simulator.patches.merge_shapes import AS_SET, KEY_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.patches.merge_shapes import Shape

Path = tuple[str, ...]

_MISSING = object()


def fields_of(value: Any, shape: Shape, path: Path = ()) -> dict[Path, Any]:
    """Return the paths of all fields in a value, with their values."""
    found: dict[Path, Any] = {}
    if isinstance(value, dict) and value and not shape.is_whole:
        for name, inner in value.items():
            found |= fields_of(inner, shape.field(name), (*path, f"f:{name}"))
    elif isinstance(value, list) and value and shape.keys is not None:
        for item in value:
            place = (*path, step_of(item, shape.keys))
            found[place] = item if shape.keys == AS_SET else _MISSING
            if shape.keys != AS_SET:
                found |= fields_of(item, shape.item(), place)
    else:
        found[path] = value
    return found


def step_of(item: Any, keys: tuple[str, ...]) -> str:
    """Return the path step of a list item."""
    if keys == AS_SET or not isinstance(item, dict):
        return f"v:{json_text(item)}"
    identity = {key: item.get(key, KEY_DEFAULTS.get(key)) for key in sorted(keys)}
    return f"k:{json_text({key: value for key, value in identity.items() if value is not None})}"


def merged(live: Any, config: Any, shape: Shape) -> Any:
    """Return a live value merged with a configuration; nothing is changed in place."""
    if isinstance(live, dict) and isinstance(config, dict) and not shape.is_whole:
        found = dict(live)
        for name, value in config.items():
            found[name] = merged(live[name], value, shape.field(name)) if name in live else value
        return found
    if not (isinstance(live, list) and isinstance(config, list)) or shape.keys is None:
        return config
    items = {step_of(item, shape.keys): item for item in live}
    for item in config:
        step = step_of(item, shape.keys)
        items[step] = merged(items[step], item, shape.item()) if step in items else item
    return list(items.values())


def without(value: Any, paths: Iterable[Path], shape: Shape) -> Any:
    """Return a value without the given paths; maps and lists that become empty are removed as well."""
    here: dict[str, list[Path]] = {}
    for path in paths:
        here.setdefault(path[0], []).append(path[1:])
    if isinstance(value, dict):
        found = {}
        for name, inner in value.items():
            left = _reduced(inner, here.get(f"f:{name}"), shape.field(name))
            if left is not _MISSING:
                found[name] = left
        return found
    if isinstance(value, list) and shape.keys is not None:
        kept = [_reduced(item, here.get(step_of(item, shape.keys)), shape.item()) for item in value]
        return [item for item in kept if item is not _MISSING]
    return value


def _reduced(value: Any, paths: list[Path] | None, shape: Shape) -> Any:
    if paths is None:
        return value
    if () in paths:
        return _MISSING
    left = without(value, paths, shape)
    return _MISSING if left in ({}, []) and value not in ({}, []) else left


def encoded(paths: Iterable[Path]) -> Object:
    """Write a set as FieldsV1."""
    root: Object = {}
    for path in sorted(paths):
        place = root
        for step in path:
            place = place.setdefault(step, {})
    _mark_items(root, set(paths), ())
    return root


def _mark_items(place: Object, paths: set[Path], path: Path) -> None:
    """Add `.` to items that are in the set together with fields of theirs."""
    for step, inner in place.items():
        _mark_items(inner, paths, (*path, step))
    if place and path in paths:
        inner = dict(place)
        place.clear()
        place["."] = {}
        place |= inner


def decoded(fields: Object, path: Path = ()) -> set[Path]:
    """Read FieldsV1."""
    found: set[Path] = set()
    for step, inner in fields.items():
        if step == ".":
            found.add(path)
        elif inner:
            found |= decoded(inner, (*path, step))
        else:
            found.add((*path, step))
    return found


def shown(path: Path) -> str:
    """Format a path as in messages: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{key}={json_text(value)}" for key, value in sorted(keys.items())) + "]"
    return text
