"""The reference pages of the site. Their facts come from the code, and their texts from its docstrings."""

from __future__ import annotations

import ast
import logging
import re
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec
import yaml
from msgspec import inspect

from docs.generate.repository_pages import ROOT
from plugins.registry import IN_TREE
from scheduler.cli.check import checked
from scheduler.cli.command import COMMANDS
from scheduler.configuration import types
from scheduler.configuration.feature_gates import EFFECTS, VERSIONS, features_of, stages_at
from scheduler.configuration.overrides import GivenFeatures
from scheduler.daemon.app.rights import Named, roles_yaml
from scheduler.daemon.metrics.stages import GATES, STAGES, stage_in
from scheduler.framework import Code, Needs
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_WIDTH: Final = 100
_FIRST_RELEASE: Final = "0.2.0"
_ACCOUNT: Final = Named("kube-system", "custom-scheduler")
_ONLY_IN_TOOLS: Final = ("testing", "tools")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _first_paragraph(docstring: str | None) -> str:
    return " ".join((docstring or "").strip().split("\n\n")[0].split())


def command_line() -> str:
    """Return the help of each command."""
    parts = ["# Command line\n\nThe help of each command, as `custom-scheduler COMMAND --help` prints it.\n"]
    for name in COMMANDS:
        function = name.replace("-", "_")
        command = getattr(import_module(f"scheduler.cli.{function}"), function)
        parts += _help(command, name)
    return "\n".join(parts)


def _help(command: click.Command, name: str) -> Iterator[str]:
    with click.Context(
        command, info_name=f"custom-scheduler {name}", terminal_width=_WIDTH, max_content_width=_WIDTH
    ) as context:
        yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found is not None
                yield from _help(found, f"{name} {child}")


def configuration() -> str:
    """Return the fields of a configuration, and of the arguments of each plugin."""
    kinds = _with_their_parts(types.KubeSchedulerConfiguration)
    meanings = _documented_meanings()
    head = (
        f"# Configuration fields\n\nThe fields of a `{types.KIND}` of `{types.API_VERSION}`. [Configuration]"
        "(../configuration.md) explains them. *Since* is the first version of custom-scheduler that has the field.\n"
    )
    parts = [head, *(_fields(kind, kind.__name__, meanings) for kind in kinds), "## Arguments of plugins\n"]
    known = set(kinds)
    for name, plugin in sorted(IN_TREE.items()):
        for kind in _with_their_parts(plugin.Args):
            if msgspec.structs.fields(kind) and kind not in known:
                known.add(kind)
                parts.append(_fields(kind, name if kind is plugin.Args else kind.__name__, {}))
    return "\n".join(parts)


def _with_their_parts(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return a struct and the structs in its fields, each once, outer ones first."""
    found = [kind]
    for each in found:
        parts = (part for field in _types_of(each) for part in _structs(field))
        found += [part for part in dict.fromkeys(parts) if part not in found]
    return found


def _types_of(kind: type[msgspec.Struct]) -> list[inspect.Type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return [field.type for field in info.fields]


def _structs(field: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    match field:
        case inspect.StructType():
            yield field.cls
        case inspect.UnionType():
            for each in field.types:
                yield from _structs(each)
        case inspect.VarTupleType() | inspect.ListType():
            yield from _structs(field.item_type)
        case inspect.DictType():
            yield from _structs(field.value_type)
        case inspect.Metadata():
            yield from _structs(field.type)


def _fields(kind: type[msgspec.Struct], heading: str, documented: Mapping[str, str]) -> str:
    meanings = _docstrings_of_fields(kind)
    rows = [
        (
            f"`{field.encode_name}`",
            _type_text(type_),
            _default_text(field),
            _since_version(type_),
            (documented.get(field.encode_name) or meanings.get(field.name, "")).replace("\n", " "),
        )
        for field, type_ in zip(msgspec.structs.fields(kind), _types_of(kind), strict=True)
    ]
    text = _first_paragraph(kind.__doc__)
    return f"## {heading}\n\n{text}\n\n{_table(('field', 'type', 'default', 'since', 'meaning'), rows)}"


def _type_text(field: inspect.Type) -> str:
    match field:
        case inspect.StructType():
            text = f"[{field.cls.__name__}](#{field.cls.__name__.lower()})"
        case inspect.UnionType():
            text = " or ".join(
                _type_text(each) for each in field.types if not isinstance(each, inspect.NoneType)
            )
        case inspect.VarTupleType() | inspect.ListType():
            text = f"list of {_type_text(field.item_type)}"
        case inspect.DictType():
            text = f"map of {_type_text(field.value_type)}"
        case inspect.IntType():
            least = field.ge if field.gt is None else field.gt + 1
            shown = [f"from {least}"] if least is not None and least > -(2**31) else []
            shown += [f"to {field.le}"] if field.le is not None and field.le < 2**31 - 1 else []
            text = " ".join(["integer", *shown])
        case inspect.EnumType():
            text = " or ".join(f"`{each.value}`" for each in field.cls)
        case inspect.LiteralType():
            text = " or ".join(f"`{each}`" for each in field.values)
        case inspect.Metadata():
            text = _type_text(field.type)
        case inspect.CustomType() | inspect.DataclassType():
            text = field.cls.__name__.lower()
        case _:
            text = _PLAIN.get(type(field), type(field).__name__.removesuffix("Type").lower())
    return text


_PLAIN: Final[Mapping[type[inspect.Type], str]] = {
    inspect.BoolType: "boolean",
    inspect.StrType: "string",
    inspect.FloatType: "number",
    inspect.BytesType: "base64 text",
    inspect.AnyType: "any value",
}


def _since_version(field: inspect.Type) -> str:
    """Return the version that a field names in its metadata; a field without one is in the first release."""
    named = (field.extra or {}).get("since") if isinstance(field, inspect.Metadata) else None
    return _FIRST_RELEASE if named is None else str(named)


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if default is msgspec.NODEFAULT:
        default = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if default in (None, (), {}, "", b"") or isinstance(default, msgspec.Struct):
        return ""
    plain = default.value if isinstance(default, Enum) else default
    return f"`{plain if isinstance(plain, str | Duration) else msgspec.json.encode(plain, enc_hook=str).decode()}`"


def _docstrings_of_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the name of each field that a class or its bases document, and the text."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and not base.__module__.startswith("msgspec"):
            module = ast.parse((ROOT / f"{base.__module__.replace('.', '/')}.py").read_text())
            (node,) = [
                each for each in module.body if isinstance(each, ast.ClassDef) and each.name == base.__name__
            ]
            text = (ast.get_docstring(node) or "").partition("Attributes:\n")[2]
            listed = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", text, re.MULTILINE)
            found.update({name: " ".join(meaning.split()) for name, meaning in listed})
            found.update(_texts_below(node))
    return found


def _texts_below(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the name of each field or member of a class that has a docstring below it, and the docstring."""
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            match field:
                case ast.AnnAssign(target=target) | ast.Assign(targets=[target]):
                    yield ast.unparse(target), _first_paragraph(str(text.value.value))


def _documented_meanings() -> dict[str, str]:
    """Return the meanings in the tables of docs/configuration.md, with links from a page in a folder."""
    text = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", text, re.MULTILINE)
    return {
        name: re.sub(
            r"\]\((?!\w+:)(?P<file>[^)#]*)", lambda match: f"](../{match['file'] or 'configuration.md'}", cell
        )
        for name, cell in reversed(rows)
    }


class _Metric(NamedTuple):
    kind: str
    name: str
    labels: tuple[str, ...]
    text: str


_METHODS: Final = {
    "counter": "counter",
    "counters": "counter",
    "gauge": "gauge",
    "gauges": "gauge",
    "histogram": "histogram",
    "histograms": "histogram",
    "read_gauges": "gauge",
    "watch_gauge": "gauge",
    "ReadCounters": "counter",
}
_METRIC: Final = re.compile(r"((custom_)?scheduler|informer|kubernetes|leader|rest|workqueue)(_[a-z]+)+")


def metrics() -> str:
    """Return a table of all metrics, with the versions of Kubernetes that have them."""
    found = sorted(metrics_in_code(), key=lambda metric: (metric.name.startswith("custom_"), metric.name))
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            ", ".join(metric.labels),
            f"{metric.text}{_since(metric.name)}",
        )
        for metric in found
    ]
    head = ("metric", "type", "labels", "meaning")
    return (
        "# Metrics\n\nThe families of `/metrics`. A metric without the prefix `custom_scheduler_` is one of "
        "kube-scheduler, and exists if the followed version of Kubernetes has it: "
        "[what differs](../compatibility.md#metrics).\n\n"
    ) + _table(head, rows)


def _since(name: str) -> str:
    """Return in which versions and with which gate a metric of kube-scheduler exists, if not always."""
    if name not in STAGES:
        return ""
    versions = [version for version in VERSIONS if stage_in(name, version) is not None]
    since = [f"Kubernetes {', '.join(versions)}"] if versions != list(VERSIONS) else []
    gate = [f"gate {GATES[name]}"] if name in GATES else []
    return f" ({'; '.join([*since, *gate])})" if since or gate else ""


def metrics_in_code() -> Iterator[_Metric]:
    """Yield the metric families that the scheduler and its plugins create."""
    for path in sorted([*(ROOT / "scheduler").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]):
        text = path.read_text()
        is_in_tools = path.relative_to(ROOT).parts[1] in _ONLY_IN_TOOLS
        if not is_in_tools and any(f"{method}(" in text for method in _METHODS):
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _METHODS:
                        yield from _metric(_METHODS[name], *node.args)
                    case ast.Tuple() if len(node.elts) > 1:
                        yield from _metric("gauge", *node.elts[:2])
                    case ast.Dict():
                        for key, value in zip(node.keys, node.values, strict=True):
                            if key is not None and isinstance(value, ast.Tuple):
                                yield from _metric("gauge", key, value.elts[0], ast.Constant("queue"))


def _metric(kind: str, *arguments: ast.expr) -> Iterator[_Metric]:
    text, labels, *_ = [*map(_literal, arguments[1:]), None, None]
    if isinstance(text, str):
        listed = labels.split() if isinstance(labels, str) else labels or ()
        for name in _metric_names(arguments[0]):
            yield _Metric(kind, name, tuple(listed), text)


def _metric_names(node: ast.expr) -> Iterable[str]:
    match node:
        case ast.Constant(value=str(name)) if _METRIC.fullmatch(name):
            return [name]
        case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(end))]):
            return [name for name in STAGES if name.endswith(end)]
    return []


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def feature_gates() -> str:
    """Return a table of all gates that a known version has."""
    on = {version: features_of({}, version) for version in VERSIONS}
    rows = []
    for gate in sorted({gate for version in VERSIONS for gate in stages_at(version)}):
        cells = []
        for version in VERSIONS:
            stage = stages_at(version).get(gate)
            state = "on" if on[version].enabled(gate) else "off"
            cells.append(
                "" if stage is None else f"{stage.name}, {state}{' (locked)' if stage.locked else ''}"
            )
        rows.append((gate, *cells, EFFECTS.get(gate, "no effect")))
    return (
        "# Feature gates\n\nThe gates that `--feature-gates` and `featureGates` accept in each version of Kubernetes, "
        "with their stage and default. [Feature gates](../configuration.md#feature-gates) explains how to set them.\n\n"
    ) + _table(("gate", *VERSIONS, "what it changes"), rows)


def status_codes() -> str:
    """Return a table of the codes of a plugin's result."""
    module = ast.parse((ROOT / "scheduler/framework/status.py").read_text())
    (node,) = [each for each in module.body if isinstance(each, ast.ClassDef) and each.name == Code.__name__]
    texts = dict(_texts_below(node))
    rows = [(f"`{code.value}`", f"`Code.{code.name}`", texts[code.name]) for code in Code]
    return (
        "# Status codes\n\nThe code of a plugin's result, as metrics (label `status`), the log and `-o json` of "
        "`explain` name it. The cause of a rejection has a [reason code](../reason-codes.md).\n\n"
    ) + _table(("code", "in a plugin", "what happens next"), rows)


def custom_resources() -> str:
    """Return the fields of the custom resources in manifests/crds."""
    parts = ["# Custom resources\n\nThe kinds in `manifests/crds`. Install only those that you use.\n"]
    for path in sorted((ROOT / "manifests/crds").glob("*.yaml")):
        for definition in yaml.safe_load_all(path.read_text()):
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                rows = list(_schema_rows({"properties": _own_fields(schema["properties"])}, ""))
                parts.append(
                    f"## {spec['names']['kind']} of {spec['group']}/{version['name']}\n\n"
                    f"{schema.get('description', '')} Scope: {spec['scope']}. File: `{path.relative_to(ROOT)}`.\n\n"
                    f"{_table(('field', 'type', 'meaning'), rows)}"
                )
    return "\n".join(parts)


def _own_fields(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a kind without those that all kinds have."""
    return {
        name: field for name, field in properties.items() if name not in {"apiVersion", "kind", "metadata"}
    }


def _schema_rows(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        if at in {"spec", "status"}:
            yield from _schema_rows(field, at)
            continue
        yield f"`{at}`", _schema_type(field), field.get("description", "")
        item = field.get("items")
        if item is not None:
            yield from _schema_rows(item, f"{at}[]")
        else:
            yield from _schema_rows(field, at)


def _schema_type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    kind = field.get("type") or ("quantity" if field.get("x-kubernetes-int-or-string") else "object")
    if kind == "array":
        return f"list of {_schema_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return f"map of {_schema_type(field['additionalProperties'])}"
    default = f", default `{field['default']}`" if "default" in field else ""
    return f"{kind}{default}"


def rights() -> str:
    """Return the roles of the default configuration, and the further rights of each plugin."""
    logger = logging.getLogger("scheduler")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the notes of a check
    try:
        roles = roles_yaml(checked(None, None, GivenFeatures()).rights(None), _ACCOUNT)
    finally:
        logger.setLevel(level)
    rows = []
    for name, plugin in sorted(IN_TREE.items()):
        needs = getattr(plugin, "needs", None)
        if isinstance(needs, Needs) and (needs.kinds or needs.rights):
            kinds, others = (
                " ".join(f"`{each}`" for each in sorted(part)) for part in (needs.kinds, needs.rights)
            )
            rows.append((name, kinds, others))
    return (
        "# Rights\n\n`custom-scheduler check --rbac --config FILE` prints the roles that a configuration needs. These "
        f"are the roles of the default configuration.\n\n```yaml\n{roles}```\n\n"
        "Each plugin adds `list` and `watch` for the kinds that it reads, and its other rights.\n\n"
    ) + _table(("plugin", "kinds that it reads", "other rights"), rows)


def plugin_contract() -> str:
    """Return the documentation of everything that a plugin may import."""
    return _documented("Plugin contract", ROOT / "scheduler/framework/__init__.py")


def test_kit() -> str:
    """Return the documentation of the test kit."""
    return _documented("Test kit", ROOT / "scheduler/testing/__init__.py")


def _documented(title: str, package: Path) -> str:
    module = ast.parse(package.read_text())
    text = (ast.get_docstring(module) or "").strip()
    name = ".".join(package.relative_to(ROOT).parent.parts)
    head, _, rest = text.partition("\n\n")
    table = f"\n\n```text\n{rest}\n```" if rest else ""
    parts = [f"# {title}\n\n`from {name} import ...`: {head}{table}\n"]
    for each in module.body:
        if isinstance(each, ast.ImportFrom) and each.module and each.module != "__future__":
            members = "".join(f"\n        - {alias.name}" for alias in each.names)
            parts.append(f"::: {each.module}\n    options:\n      members:{members}\n")
    return "\n".join(parts)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/command-line.md": command_line,
    "reference/configuration.md": configuration,
    "reference/plugin-contract.md": plugin_contract,
    "reference/test-kit.md": test_kit,
    "reference/metrics.md": metrics,
    "reference/feature-gates.md": feature_gates,
    "reference/status-codes.md": status_codes,
    "reference/custom-resources.md": custom_resources,
    "reference/rights.md": rights,
}
"""Page, relative to docs/ -> its text."""
