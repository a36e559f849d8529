"""Label and field selectors: the notation of query parameters, and validation of selectors in objects.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go, and
    pkg/apis/core/validation/validation.go for those of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.objects.selectors import (
    LabelRule,
    LabelSelector,
    Operator,
    Requirement,
    is_label_key,
    is_label_value,
    parse_int64,
    parse_label_selector,
)
from scheduler.tools.simulator.apimachinery.causes import Cause, forbidden_field, invalid_value, required
from scheduler.tools.simulator.apimachinery.status import bad_request
from scheduler.tools.simulator.apimachinery.strategy import (
    dns_subdomain,
    validate_label_name,
    validate_label_value,
    validate_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object

Predicate = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(?:(==|!=|[()<>,!=])|([^\s()<>,!=]+))")
_OPERATORS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
}
_SHOWN: Final = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}
_FIELD_TERM = re.compile(r"((?:\\.|[^\\=!])*?)(!=|==|=)((?:\\.|[^\\])*)", re.DOTALL)
_FIELD_SPLIT = re.compile(r"((?:\\.|[^\\,])+)(?:,|$)", re.DOTALL)


class Selector:
    """The selection of a list or watch: a namespace, labels and fields."""

    __slots__ = ("_predicates", "namespace", "selects_all")

    def __init__(self, namespace: str = "", predicates: tuple[Predicate, ...] = ()) -> None:
        self.namespace = namespace
        self._predicates = predicates
        self.selects_all = not namespace and not predicates

    @property
    def has_predicates(self) -> bool:
        return bool(self._predicates)

    def matches(self, namespace: str, obj: Mapping[str, Any]) -> bool:
        """Return whether an object is selected."""
        if self.namespace and namespace != self.namespace:
            return False
        return all(predicate(obj) for predicate in self._predicates)


def selector_of(kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> Selector:
    """Build a selector from query parameters.

    Raises:
        StatusError: 400, it cannot be parsed, or the kind does not support a field.
    """
    predicates: list[Predicate] = []
    if labels:
        rule = parse_labels(labels)
        predicates.append(lambda obj: rule.matches(obj["metadata"].get("labels", {})))
    if fields:
        predicates.extend(_parse_fields(kind, fields))
    return Selector(namespace, tuple(predicates))


def label_rule(label_selector: Mapping[str, Any]) -> LabelRule:
    """Return the rule of a metav1.LabelSelector.

    Raises:
        SelectorError: it is invalid.
    """
    return parse_label_selector(msgspec.convert(label_selector, LabelSelector))


def selector_text(label_selector: Object) -> str:
    """Return a metav1.LabelSelector in the notation of query parameters, sorted by key."""
    terms = [(key, f"{key}={value}") for key, value in label_selector.get("matchLabels", {}).items()]
    for one in label_selector.get("matchExpressions", ()):
        key, values = one["key"], ",".join(sorted(one.get("values", ())))
        terms.append((key, _SHOWN[one["operator"]].format(key=key, values=values)))
    return ",".join(text for _, text in sorted(terms, key=itemgetter(0)))


def parse_labels(text: str) -> LabelRule:
    """Parse a label selector.

    Raises:
        StatusError: 400, with upstream's message where clients are likely to see it.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/labels/selector.go, Parse.
    """
    try:
        return LabelRule(tuple(_Labels(text).requirements()))
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


class _Labels:
    """Parser of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] or match[2] for match in _TOKEN.finditer(text)]
        self._place = 0

    def requirements(self) -> list[Requirement]:
        found = []
        while self._peek():
            found.append(self._requirement())
            separator = self._next()
            if separator not in {"", ","}:
                raise ValueError(f"found '{separator}', expected: ',' or 'end of string'")
            if separator == "," and not self._peek():
                raise ValueError("found '', expected: identifier after ','")
        return found

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if not is_label_key(key):
            raise ValueError(f"found '{key}', expected: !, identifier, or 'end of string'")
        if absent:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        sign = self._peek()
        if sign in {"", ","}:
            return Requirement(key, Operator.EXISTS)
        self._next()
        operator = _OPERATORS.get(sign)
        if operator is None:
            raise ValueError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if sign in {"in", "notin"} else [self._value("", ",")]
        bound = parse_int64(values[0]) if operator in {Operator.GT, Operator.LT} else 0
        if bound is None:
            raise ValueError(
                f"values[0]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return Requirement(key, operator, frozenset(values), bound)

    def _value(self, *ends: str) -> str:
        """Read a value; nothing before its end is the empty value."""
        value = "" if self._peek() in ends else self._next()
        if not is_label_value(value):
            raise ValueError(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> list[str]:
        opening = self._next()
        if opening != "(":
            raise ValueError(f"found '{opening}' expected: '('")
        values = []
        while True:
            values.append(self._value(",", ")"))
            separator = self._next()
            if separator == ")":
                return values
            if separator != ",":
                raise ValueError(f"found '{separator}', expected: ',' or ')'")


def _parse_fields(kind: Kind, text: str) -> list[Predicate]:
    """Parse a field selector into one predicate per term.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/fields/selector.go, ParseSelector.
    """
    predicates = []
    for term in _FIELD_SPLIT.findall(text):
        match = _FIELD_TERM.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        label, operator, value = match[1].strip(), match[2], re.sub(r"\\(.)", r"\1", match[3])
        predicates.append(_field_predicate(kind, label, value, wanted=operator != "!="))
    return predicates


def _field_predicate(kind: Kind, label: str, value: str, *, wanted: bool) -> Predicate:
    field = kind.fields.get(label)
    if field is None:
        raise bad_request(f"field label not supported: {label}")
    path, default = field

    def predicate(obj: Mapping[str, Any]) -> bool:
        found: Any = obj
        for step in path:
            found = found.get(step)
            if found is None:
                found = default
                break
        if found is True or found is False:
            found = "true" if found else "false"
        return (found == value) is wanted

    return predicate


_IN: Final = frozenset({"In", "NotIn"})
_EXISTS: Final = frozenset({"Exists", "DoesNotExist"})
_COMPARES: Final = frozenset({"Gt", "Lt"})


def validate_label_selector(selector: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of a LabelSelector."""
    yield from validate_labels(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions", ())):
        where = f"{path}.matchExpressions[{index}]"
        yield from _validate_operator(requirement, where, frozenset())
        yield from validate_label_name(requirement.get("key", ""), f"{where}.key")
        yield from _validate_values(requirement, where)


def validate_node_selector(selector: Object, path: str) -> Iterator[Cause]:
    """Yield the errors of a NodeSelector."""
    terms = selector.get("nodeSelectorTerms", ())
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from validate_node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")


def validate_node_selector_term(term: Object, path: str, *, any_value: bool = False) -> Iterator[Cause]:
    """Yield the errors of a term of a NodeSelector; values of preferred terms may be `any_value`."""
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        where = f"{path}.matchExpressions[{index}]"
        yield from _validate_operator(requirement, where, _COMPARES)
        yield from validate_label_name(requirement.get("key", ""), f"{where}.key")
        if not any_value:
            yield from _validate_values(requirement, where)
    for index, requirement in enumerate(term.get("matchFields", ())):
        yield from _validate_field(requirement, f"{path}.matchFields[{index}]")


def _validate_operator(requirement: Object, path: str, compares: frozenset[str]) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in _IN:
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _EXISTS:
        if values:
            problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{path}.values", problem)
    elif operator in compares:
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid_value(f"{path}.operator", f'"{operator}"', "not a valid selector operator")


def _validate_values(requirement: Object, path: str) -> Iterator[Cause]:
    for index, value in enumerate(requirement.get("values", ())):
        yield from validate_label_value(value, f"{path}.values[{index}]")


def _validate_field(requirement: Object, path: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator not in _IN:
        yield invalid_value(f"{path}.operator", f'"{operator}"', "not a valid selector operator")
    elif len(values) != 1:
        problem = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", problem)
    key = requirement.get("key", "")
    if key != "metadata.name":
        yield invalid_value(f"{path}.key", f'"{key}"', "not a valid field selector key")
        return
    for index, value in enumerate(values):
        if problem := dns_subdomain(value):
            yield invalid_value(f"{path}.values[{index}]", f'"{value}"', problem)
