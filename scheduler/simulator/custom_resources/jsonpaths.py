"""JSONPaths of custom resource definitions: table columns, and the paths of scale.

Source:
    Kubernetes v1.36, staging/src/k8s.io/client-go/util/jsonpath; supported are fields, indexes, `[*]` and filters that
    compare one field with a text or a number, as in `.status.conditions[?(@.type=="Ready")].status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

Step = Callable[[Any], Iterator[Any]]

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|(?P<all>\[\*\]|\.\*)"
    r"|\[\?\(\s*@(?P<key>(?:\.[\w\-/]+)+)\s*(?P<operator>==|!=)\s*(?P<value>\"[^\"]*\"|'[^']*'|-?[\d.]+|true|false)\s*\)\]"
)


def found_at(obj: Any, path: str) -> list[Any]:
    """Return the values at a path; none if the path leads nowhere.

    Raises:
        ValueError: it is not a path, or uses an unsupported feature.
    """
    values = [obj]
    for step in _steps(path):
        values = [inner for value in values for inner in step(value)]
    return values


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    """Parse a path.

    Raises:
        ValueError: it is not supported.
    """
    steps: list[Step] = []
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            raise ValueError(f"JSONPath {path!r} cannot be understood from {path[place:]!r} on")
        steps.append(_step(match))
        place = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    field = match["quoted"] if match["field"] is None else re.sub(r"\\(.)", r"\1", match["field"])
    if field == "*" or match["all"]:
        return _every
    if field is not None:
        return lambda value: iter([value[field]] if isinstance(value, dict) and field in value else ())
    if match["index"] is not None:
        return _at(int(match["index"]))
    return _where(match["key"], match["operator"] == "==", match["value"])


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _at(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _where(key: str, equal: bool, literal: str) -> Step:
    wanted = _read(literal)

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = found_at(item, key)
            if (found[:1] == [wanted]) == equal:
                yield item

    return step


def _read(literal: str) -> Any:
    if literal[0] in "\"'":
        return literal[1:-1]
    if literal in {"true", "false"}:
        return literal == "true"
    return float(literal) if "." in literal else int(literal)
