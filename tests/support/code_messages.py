"""The messages that users can meet, read from the syntax of the code.

A value in a message is `…`. What is computed elsewhere, such as the text of an exception, cannot be read: such messages
are left out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
_NOT_IN_THE_DAEMON = (
    "scheduler/objects/admission.py",  # what the API server and the controllers write
    "scheduler/objects/created_pods.py",
    "scheduler/objects/limit_ranges.py",
    "scheduler/testing",
    "scheduler/tools",
)
_LEVELS = {"warning", "error", "exception", "critical"}
_VALUE = "…"
_WORD = re.compile(r"[A-Za-z]{2,}")


class Module(NamedTuple):
    """A module.

    Attributes:
        name: dotted.
        tree: its syntax.
        calls: each call: the name of the function, the name before it ("…" if it is another expression), and the call.
        functions: all, also methods and functions in functions.
        texts: names of module-level constants -> their texts.
        imports: imported name -> (module, name there).
    """

    name: str
    tree: ast.Module
    calls: list[tuple[str, str, ast.Call]]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    texts: dict[str, str]
    imports: dict[str, tuple[str, str]]


@cache
def modules() -> dict[str, Module]:
    """Return the modules of the daemon and its plugins, by name."""
    found = {}
    for path in [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "scheduler").rglob("*.py")]:
        relative = path.relative_to(ROOT)
        if not str(relative).startswith(_NOT_IN_THE_DAEMON):
            module = _module(".".join(relative.with_suffix("").parts).removesuffix(".__init__"), path)
            found[module.name] = module
    return found


def _module(name: str, path: Path) -> Module:
    tree = ast.parse(path.read_text())
    module = Module(name, tree, [], [], {}, {})
    texts = module.texts
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(there)):
                names = {alias.asname or alias.name: (there, alias.name) for alias in node.names}
                module.imports.update(names)
            case ast.Call(func=ast.Attribute(value=value, attr=called)):
                before = value.id if isinstance(value, ast.Name) else _VALUE
                module.calls.append((called, before, node))
            case ast.Call(func=ast.Name(id=called)):
                module.calls.append((called, "", node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                module.functions.append(node)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = zip(targets, values, strict=False)
                named = {
                    ast.unparse(target): text for target, value in pairs for text in _literals(value, texts)
                }
                texts.update(named)
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ):
                for text in _literals(value, texts):
                    texts[target] = text
    return module


def _literals(node: ast.expr, texts: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(_part(part, texts) for part in parts)
        case ast.Call(func=ast.Name(id="Reason"), args=[text, *_]):
            yield from _literals(text, texts)


def _part(part: ast.expr, texts: dict[str, str]) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Name(id=name)) if name in texts:
            return texts[name]
    return _VALUE


def texts_of(node: ast.expr, module: Module) -> Iterator[str]:
    """Yield the texts that an expression may have; nothing if they cannot be read."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from texts_of(body, module)
            yield from texts_of(orelse, module)
        case ast.Name(id=name) if name in module.texts:
            yield module.texts[name]
        case ast.Name(id=name) if name in module.imports:
            where, there = module.imports[name]
            if where in modules() and there in modules()[where].texts:
                yield modules()[where].texts[there]
        case ast.Starred(value=ast.Tuple(elts=parts)):
            for part in parts:
                yield from texts_of(part, module)
        case _:
            yield from _literals(node, module.texts)


def log_messages() -> set[str]:
    """Return the messages of log lines that are, or may be, warnings and errors."""
    return _texts_given_to(
        lambda name, value: (
            (0 if name in _LEVELS else 1) if value == "logger" and name in {*_LEVELS, "log"} else None
        )
    )


def status_messages() -> set[str]:
    """Return the reasons of results of plugins and of the scheduler, as in events and conditions of pods."""
    found = _texts_given_to(_place_of_a_reason)
    for module in modules().values():
        found.update(text for name, text in module.texts.items() if name.lstrip("_").startswith("REASON"))
        found.update(text for text in literals_of(module) if text.startswith("node(s) "))
    return {text for text in found if len(_WORD.findall(text)) > 1}


def _place_of_a_reason(name: str, value: str) -> int | None:
    if name == "DeviceRefusal" or (value == "Status" and name in {"unschedulable", "failed"}):
        return 0
    return 1 if (value, name) == ("Outcomes", "reject") else None


def _texts_given_to(place_of: Callable[[str, str], int | None]) -> set[str]:
    """Return the texts in calls of some functions, and of functions of the same module that pass a text on to these.

    Args:
        place_of: name of a function and the expression before it -> which argument is the text; None for other functions.
    """
    found: set[str] = set()
    for module in modules().values():
        passing = _passing_on(module, place_of)
        for name, value, call in module.calls:
            place = place_of(name, value)
            place = passing.get(name) if place is None else place
            if place is not None:
                for argument in call.args[place : place + 1]:
                    found.update(texts_of(argument, module))
    return found


def _passing_on(module: Module, place_of: Callable[[str, str], int | None]) -> dict[str, int]:
    """Return the functions that pass a text of their caller on, and which of their arguments it is."""
    found = {}
    for name, value, call in module.calls:
        place = place_of(name, value)
        given = call.args[place] if place is not None and len(call.args) > place else None
        for function in module.functions if isinstance(given, ast.Name) else ():
            names = [argument.arg for argument in function.args.args if argument.arg not in {"self", "cls"}]
            is_in_it = function.lineno <= call.lineno <= (function.end_lineno or 0)
            if is_in_it and isinstance(given, ast.Name) and given.id in names:
                found[function.name] = names.index(given.id)
    return found


def event_reasons() -> set[str]:
    """Return the reasons of events and of conditions."""
    found: set[str] = set()
    for module in modules().values():
        for name, _, call in module.calls:
            reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
            if name == "Acceptance":
                reasons += call.args[:1]
            for kind, reason in zip(call.args, call.args[1:], strict=False):
                if isinstance(kind, ast.Constant) and kind.value in {"Normal", "Warning"}:
                    reasons.append(reason)
            for reason in reasons:
                found.update(text for text in texts_of(reason, module) if text.isidentifier())
    return found


def literals_of(module: Module) -> Iterator[str]:
    """Yield all texts in a module; the parts of a text with values are no texts of their own."""
    waiting: list[ast.AST] = [module.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant | ast.JoinedStr):
            yield from _literals(node, module.texts)
        else:
            waiting += ast.iter_child_nodes(node)


def reason_codes() -> set[str]:
    """Return the reason codes in the code; one that is computed is left out."""
    found: set[str] = set()
    for module in modules().values():
        for name, _, call in module.calls:
            if name == "Reason" and len(call.args) > 1:
                found.update(texts_of(call.args[1], module))
    return found
