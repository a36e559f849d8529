"""Label and field selectors in the notation of query parameters, as in `app in (a,b),!canary`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.simulator.apimachinery.status import bad_request

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object

Predicate = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(?:(==|!=|[()<>,!=])|([^\s()<>,!=]+))")
_NAME = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_FIELD_TERM = re.compile(r"((?:\\.|[^\\=!])*?)(!=|==|=)((?:\\.|[^\\])*)", re.DOTALL)
_FIELD_SPLIT = re.compile(r"((?:\\.|[^\\,])+)(?:,|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector.

    Attributes:
        operator: `in`, `notin`, `exists`, `!`, `>` or `<`; equality is `in` and `notin` of one value.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels fulfil it; a missing label fulfils `notin` and `!`."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            number = int(value)
        except ValueError:
            return False
        bound = int(self.values[0])
        return number > bound if self.operator == ">" else number < bound


class Selector:
    """What a list or a watch is limited to: a namespace, labels and fields."""

    __slots__ = ("_predicates", "namespace", "selects_all")

    def __init__(self, namespace: str = "", predicates: tuple[Predicate, ...] = ()) -> None:
        self.namespace = namespace
        self._predicates = predicates
        self.selects_all = not namespace and not predicates

    @property
    def has_predicates(self) -> bool:
        return bool(self._predicates)

    def matches(self, namespace: str, obj: Mapping[str, Any]) -> bool:
        """Say whether an object is selected."""
        if self.namespace and namespace != self.namespace:
            return False
        return all(predicate(obj) for predicate in self._predicates)


def selector_of(kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> Selector:
    """Build a selector from query parameters.

    Raises:
        StatusError: 400 for one that cannot be parsed, or a field the kind cannot be selected by.
    """
    predicates: list[Predicate] = []
    if labels:
        requirements = parse_labels(labels)
        predicates.append(lambda obj: labels_match(requirements, obj["metadata"].get("labels", {})))
    if fields:
        predicates.extend(_parse_fields(kind, fields))
    return Selector(namespace, tuple(predicates))


def labels_match(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Say whether labels fulfil all requirements."""
    return all(requirement.matches(labels) for requirement in requirements)


def requirements_of(label_selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Turn a metav1.LabelSelector into requirements."""
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    equal = [Requirement(key, "in", (value,)) for key, value in label_selector.get("matchLabels", {}).items()]
    expressions = [
        Requirement(term["key"], operators[term["operator"]], tuple(term.get("values", ())))
        for term in label_selector.get("matchExpressions", ())
    ]
    return (*equal, *expressions)


def selector_text(label_selector: Object) -> str:
    """Write a metav1.LabelSelector in the notation of query parameters, ordered by key."""
    terms = []
    for requirement in sorted(requirements_of(label_selector), key=lambda one: one.key):
        values = ",".join(sorted(requirement.values))
        if requirement.operator == "exists":
            terms.append(requirement.key)
        elif requirement.operator == "!":
            terms.append(f"!{requirement.key}")
        elif requirement.key in label_selector.get("matchLabels", {}):
            terms.append(f"{requirement.key}={values}")
        else:
            terms.append(f"{requirement.key} {requirement.operator} ({values})")
    return ",".join(terms)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector.

    Raises:
        StatusError: 400, in upstream's words where clients are likely to see them.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/labels/selector.go, Parse.
    """
    try:
        return tuple(_Labels(text).requirements())
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


class _Labels:
    """A label selector while it is read."""

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
        if not _NAME.fullmatch(key):
            raise ValueError(f"found '{key}', expected: !, identifier, or 'end of string'")
        if absent:
            return Requirement(key, "!")
        operator = self._peek()
        if operator in {"", ","}:
            return Requirement(key, "exists")
        self._next()
        if operator in {"in", "notin"}:
            return Requirement(key, operator, self._values())
        if operator in {"=", "==", "!="}:
            return Requirement(key, "notin" if operator == "!=" else "in", (self._value(),))
        if operator in {">", "<"}:
            bound = self._value()
            if not re.fullmatch(r"[-+]?\d+", bound):
                raise ValueError(
                    f"values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return Requirement(key, operator, (bound,))
        raise ValueError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _value(self) -> str:
        """Read one value; none at all is the empty value."""
        if self._peek() in {"", ","}:
            return ""
        return self._checked(self._next())

    def _values(self) -> tuple[str, ...]:
        opening = self._next()
        if opening != "(":
            raise ValueError(f"found '{opening}' expected: '('")
        values = []
        while True:
            if self._peek() in {",", ")"}:
                values.append("")
            else:
                values.append(self._checked(self._next()))
            separator = self._next()
            if separator == ")":
                return tuple(values)
            if separator != ",":
                raise ValueError(f"found '{separator}', expected: ',' or ')'")

    @staticmethod
    def _checked(value: str) -> str:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"found '{value}', expected: identifier")
        return value


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
