"""Label selectors and node selector terms, as API structs and as parsed rules.

`parse_*` turns the structs into rules, which match objects, and detects errors that the API server does not: a bound of
Gt that is not a number, an invalid label value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from itertools import chain
from string import ascii_letters, ascii_lowercase, digits
from typing import TYPE_CHECKING

import msgspec

from scheduler.errors import FieldError, SchedulerError
from scheduler.loop_work import run_to_end
from scheduler.objects.meta import ApiStruct

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

_LONGEST_NAME = 63
_LONGEST_PREFIX = 253

_NAME = re.compile("[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")


def is_label_key(text: str) -> bool:
    """Return whether text is a valid label key: a name, optionally after a DNS domain and a slash.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    prefix, slash, name = text.rpartition("/")
    if slash and not _is_domain(prefix):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)  # many names share few prefixes
def _is_domain(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether text is a valid label value; the empty string is one.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.
    """
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)


def label_value_problems(text: str) -> Iterator[str]:
    """Yield why text is no valid label value, as Kubernetes says it.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.
    """
    if len(text.encode()) > _LONGEST_NAME:
        yield f"must be no more than {_LONGEST_NAME} characters"
    if text and not _NAME.fullmatch(text):
        yield (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
            "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
            "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )


def are_label_keys(keys: Collection[str]) -> bool:
    """Return whether all keys are valid; one check of all, because a selector may have 100,000 keys."""
    if "/" not in "\n".join(keys):  # keys without a prefix take a third of the time
        return all(keys) and _are_lines(keys, _NAME_CLASSES, _LONGEST_NAME)
    parts = [key.rpartition("/") for key in keys]
    names, prefixes = [name for _, _, name in parts], {prefix for prefix, slash, _ in parts if slash}
    return (
        all(names)
        and _are_lines(names, _NAME_CLASSES, _LONGEST_NAME)
        and all(prefixes)
        and _are_lines(prefixes, _DOMAIN_CLASSES, _LONGEST_PREFIX, (*_MISPLACED, b"\n\n"))
    )


def are_label_values(values: Collection[str]) -> bool:
    """Return whether all values are valid; one check of all, because a selector may have 100,000 values."""
    return _are_lines(values, _NAME_CLASSES, _LONGEST_NAME)


def _classes(ends: str, inner: str, separators: str = "") -> bytes:
    """Return the class of each byte: `a` at the ends of a line or within it, `-` only within it, a line end, or `!`."""
    classes = {
        "\n": "\n",
        **dict.fromkeys(separators, "\n"),
        **dict.fromkeys(inner, "-"),
        **dict.fromkeys(ends, "a"),
    }
    return "".join(classes.get(chr(byte), "!") for byte in range(256)).encode()


_NAME_CLASSES = _classes(ascii_letters + digits, "-_.")
_DOMAIN_CLASSES = _classes(ascii_lowercase + digits, "-", ".")
_MISPLACED = b"!", b"\n-", b"-\n"


def _are_lines(
    texts: Collection[str], classes: bytes, longest: int, misplaced: tuple[bytes, ...] = _MISPLACED
) -> bool:
    """Return whether no text is too long or has a misplaced character."""
    if not texts:
        return True
    lines = "\n".join(texts)
    if not lines.isascii() or lines.count("\n") != len(texts) - 1 or max(map(len, texts)) > longest:
        return False
    found = f"\n{lines}\n".encode().translate(classes)
    return not any(each in found for each in misplaced)


METADATA_NAME = "metadata.name"
"""The only field of nodes that `matchFields` supports."""

_INTEGER = re.compile("[+-]?[0-9]+")


class Operator(Enum):
    """The relation of a requirement's key to its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"

    __hash__ = object.__hash__  # the members are singletons, and hashing the name costs a call


_OPERATORS = tuple(Operator)
_LABEL_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_FIELD_OPERATORS = (Operator.IN, Operator.NOT_IN)


class SelectorRequirement(ApiStruct, frozen=True):
    """v1.NodeSelectorRequirement and metav1.LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """v1.NodeSelectorTerm: all of its requirements must match; without any it matches nothing."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.match_expressions or self.match_fields)


class NodeSelector(ApiStruct, frozen=True):
    """v1.NodeSelector: one of its terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """v1.PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    """v1.NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    """metav1.LabelSelector: all of its requirements must match; without any it matches everything."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()


class SelectorError(SchedulerError):
    """An invalid selector."""

    def __init__(self, faults: Iterable[FieldError]) -> None:
        self.faults = tuple(faults)
        description = ", ".join(str(fault) for fault in self.faults)
        # As upstream's aggregates have it.
        super().__init__(f"[{description}]" if len(self.faults) > 1 else description)


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One rule about one label.

    Attributes:
        key: the label's key.
        operator: how the label's value must relate to the values.
        values: the values of the selector.
        bound: for GT and LT, the number to compare with.
    """

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0

    def admits(self, value: str | None) -> bool:
        """Return whether the rule matches a label's value; None is a missing label.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/labels/selector.go, Requirement.Matches.
        """
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        number = None if value is None else parse_int64(value)
        if number is None:
            return False
        return number > self.bound if self.operator is Operator.GT else number < self.bound


class LabelRule(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A parsed label selector.

    Attributes:
        expressions: all must match; None matches nothing.
        labels: keys and values of labels that must all exist. They are no expressions, because a selector may have
            100,000 of them.
    """

    expressions: tuple[Requirement, ...] | None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no requirements and matches everything."""
        return self.expressions == () and not self.labels

    @property
    def count(self) -> int:
        """The number of requirements."""
        return len(self.labels) + len(self.expressions or ())

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements, those of labels first; none if it matches nothing."""
        labels = [Requirement(key, Operator.IN, frozenset((value,))) for key, value in self.labels]
        return (*labels, *(self.expressions or ()))

    @property
    def cost(self) -> int:
        """The cost of indexing it, in requirements with few values."""
        expressions = self.expressions or ()
        return self.count + sum([len(each.values) // VALUES_OF_A_REQUIREMENT for each in expressions])

    @property
    def length(self) -> int:
        """The approximate number of characters of its source."""
        expressions = self.expressions or ()
        return sum([32 + len(key) + len(value) for key, value in self.labels]) + sum(
            [32 + len(each.key) + sum(map(len, each.values)) for each in expressions]
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.expressions is None:
            return False
        # This is called for every added or removed pod: a loop takes half the time of all().
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        for requirement in self.expressions:  # noqa: SIM110
            if not requirement.admits(labels.get(requirement.key)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A parsed node selector term: all requirements must match.

    Attributes:
        labels: the requirements about the node's labels.
        fields: the requirements about its fields; fields other than METADATA_NAME read as empty.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        return all(requirement.admits(labels.get(requirement.key)) for requirement in self.labels) and all(
            requirement.admits(node_name if requirement.key == METADATA_NAME else "")
            for requirement in self.fields
        )


@dataclass(frozen=True)
class RequiredNodeAffinity:
    """The required node affinity of a pod, from both fields of its spec.

    Attributes:
        labels: the requirements of nodeSelector; all must match.
        terms: the terms of required node affinity; one must match. None without required terms.
        has_faults: whether there are also invalid terms, such as "zone Gt x", which the API server accepts.
    """

    labels: tuple[Requirement, ...] = ()
    terms: tuple[NodeRule, ...] | None = None
    has_faults: bool = False

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        return self.selects(labels) and (
            self.terms is None or any(term.matches(node_name, labels) for term in self._near(labels))
        )

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node matches nodeSelector alone."""
        return all(requirement.admits(labels.get(requirement.key)) for requirement in self.labels)

    def _near(self, labels: Mapping[str, str]) -> Iterable[NodeRule]:
        """Return the terms that may match a node with these labels; with very many terms, only those that name one of the labels."""
        terms = self.terms or ()
        if len(terms) <= _FEW:
            return terms
        named = (self._by_label.get(label, ()) for label in (None, *labels.items()))
        return chain.from_iterable(named)

    @cached_property
    def _by_label(self) -> Mapping[tuple[str, str] | None, Sequence[NodeRule]]:
        """A label that terms require -> these terms; None -> the terms that require no label, or one of several."""
        found: dict[tuple[str, str] | None, list[NodeRule]] = {}
        for term in self.terms or ():
            naming = [each for each in term.labels if each.operator is Operator.IN]
            fewest = min(naming, key=lambda each: len(each.values), default=None)
            if fewest is None or len(fewest.values) > _FEW:
                found.setdefault(None, []).append(term)
                continue
            for value in fewest.values:
                found.setdefault((fewest.key, value), []).append(term)
        return found


_BY_NAME = {operator.value: operator for operator in Operator}
_WITH_VALUES = frozenset({Operator.IN, Operator.NOT_IN})
_WITHOUT_VALUES = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})
_NO_RULE = Requirement("", Operator.IN)


def parse_int64(text: str) -> int | None:
    """Parse a number as Go's strconv.ParseInt does; return None if it is invalid or exceeds 64 bits."""
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 19:
        return None
    number = -int(digits or "0") if text.startswith("-") else int(digits or "0")
    return number if -(1 << 63) <= number < 1 << 63 else None


def parse_label_selector(selector: LabelSelector | None, path: str = "") -> LabelRule:
    """Parse a label selector; None matches nothing, an empty one everything.

    Raises:
        SelectorError: a key, operator or value is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/helpers.go, LabelSelectorAsSelector.
    """
    if selector is None:
        return LabelRule(None)
    return run_to_end(read_label_selector(selector, path))


def read_label_selector(selector: LabelSelector, path: str = "") -> Generator[None, None, LabelRule]:
    """Parse a label selector in steps. The checks of all its labels, and of all keys and values, are one step each.

    Raises:
        SelectorError: as `parse_label_selector`.
    """
    faults: list[FieldError] = []
    labels = selector.match_labels
    are_valid = are_label_keys(labels) and are_label_values(labels.values())
    for key, value in () if are_valid else labels.items():
        labelled = SelectorRequirement(key, Operator.IN.value, (value,))
        place, known = f"{path}.matchLabels", len(faults)
        _parse(labelled, place, _LABEL_OPERATORS, faults)
        faults[known:] = [  # a requirement has fields, and a label has none
            FieldError(place if fault.path == f"{place}.key" else f"{place}.{key}", fault.problem)
            for fault in faults[known:]
        ]
    yield
    required = list(labels.items())
    expressions: list[Requirement] = []
    selected = selector.match_expressions
    values = [*chain.from_iterable([each.values for each in selected])]
    are_valid = are_label_keys([each.key for each in selected]) and are_label_values(values)
    for index, written in enumerate(selected):
        if index % _REQUIREMENTS_A_STEP == 0:
            yield
        operator = _BY_NAME.get(written.operator) if are_valid else None
        if operator is Operator.IN and len(written.values) == 1:
            required.append((written.key, written.values[0]))
        elif operator in (_WITH_VALUES if written.values else _WITHOUT_VALUES):
            expressions.append(Requirement(written.key, operator, frozenset(written.values)))
        else:
            place = f"{path}.matchExpressions[{index}]"
            expressions.append(_parse(written, place, _LABEL_OPERATORS, faults))
    if faults:
        raise SelectorError(faults)
    return LabelRule(tuple(expressions), tuple(required))


def parse_node_term(term: NodeSelectorTerm, path: str = "") -> NodeRule:
    """Parse a term that is not empty.

    Raises:
        SelectorError: a key, operator or value is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go,
        newNodeSelectorTerm.
    """
    labels: list[Requirement] = []
    fields: list[Requirement] = []
    for read in read_node_term(term, path):
        if read is not None:
            is_field, requirement = read
            (fields if is_field else labels).append(requirement)
    return NodeRule(_all_of(labels), _all_of(fields))


def read_node_term(term: NodeSelectorTerm, path: str = "") -> Iterator[tuple[bool, Requirement] | None]:
    """Yield the requirements of a term one by one, each with whether it is about a field, until one is invalid.

    Yield None between steps while reading a requirement with many values.

    Raises:
        SelectorError: as `parse_node_term`, at the end.
    """
    faults: list[FieldError] = []
    for index, written in enumerate(term.match_expressions):
        read = yield from _read(written, f"{path}.matchExpressions[{index}]", _OPERATORS, faults)
        if not faults:
            yield False, read
    for index, written in enumerate(term.match_fields):
        requirement = _parse_field(written, f"{path}.matchFields[{index}]", faults)
        if not faults:
            yield True, requirement
    if faults:
        raise SelectorError(faults)


def node_rules(selector: NodeSelector, faulty: list[NodeSelectorTerm] | None = None) -> tuple[NodeRule, ...]:
    """Parse the terms of a selector, any of which may match; empty and invalid terms match nothing.

    Args:
        selector: the node selector.
        faulty: receives the invalid terms.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go,
        LazyErrorNodeSelector.
    """
    written = selector.node_selector_terms
    rules = _parsed((term for term in written if not term.is_empty), [] if faulty is None else faulty)
    return tuple(rules) if len(written) <= _FEW else _any_of(rules)


def _parsed(terms: Iterable[NodeSelectorTerm], faulty: list[NodeSelectorTerm]) -> Iterator[NodeRule]:
    for term in terms:
        try:
            yield parse_node_term(term)
        except SelectorError:
            faulty.append(term)  # the API server accepted it long ago; the other terms still count


def _any_of(rules: Iterable[NodeRule]) -> tuple[NodeRule, ...]:
    """Return rules any of which may match, with rules about the same label or field merged."""
    about_labels: list[Requirement] = []
    about_fields: list[Requirement] = []
    others: dict[NodeRule, None] = {}
    for rule in rules:
        if len(rule.labels) == 1 and not rule.fields:
            about_labels.append(rule.labels[0])
        elif len(rule.fields) == 1 and not rule.labels:
            about_fields.append(rule.fields[0])
        else:
            others[rule] = None
    return (
        *(NodeRule(labels=(requirement,)) for requirement in merged(about_labels, every=False)),
        *(NodeRule(fields=(requirement,)) for requirement in merged(about_fields, every=False)),
        *others,
    )


def _all_of(requirements: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Return requirements all of which must match, with requirements about the same label merged."""
    return tuple(requirements if len(requirements) <= _FEW else merged(requirements, every=True))


def merged(requirements: Iterable[Requirement], *, every: bool) -> Iterator[Requirement]:
    """Yield one requirement for each key and operator, which matches if all, or any, of that kind match."""
    alike: dict[tuple[str, Operator], list[Requirement]] = {}
    for requirement in requirements:
        alike.setdefault((requirement.key, requirement.operator), []).append(requirement)
    for (key, operator), some in alike.items():
        if len(some) == 1:
            yield some[0]
            continue
        values = [requirement.values for requirement in some]
        bounds = [requirement.bound for requirement in some]
        shared = (operator is Operator.IN) is every
        yield Requirement(
            key,
            operator,
            values[0].intersection(*values) if shared else values[0].union(*values),
            max(bounds) if (operator is Operator.GT) is every else min(bounds),
        )


VALUES_OF_A_REQUIREMENT = 16
"""The number of values of a requirement that cost as much as another requirement."""
_FEW = 16
"""Up to this number rules or requirements are evaluated one by one."""
_REQUIREMENTS_A_STEP = 256
"""How many requirements of a label selector are parsed in one step; it takes about a millisecond."""
_VALUES_A_STEP = 1024
"""How many values of a requirement are checked in one step; it takes about a millisecond."""


def required_node_affinity(
    node_selector: Mapping[str, str], affinity: NodeAffinity | None
) -> RequiredNodeAffinity:
    """Return the required node affinity of a pod.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go,
        GetRequiredNodeAffinity.
    """
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    faulty: list[NodeSelectorTerm] = []
    return RequiredNodeAffinity(
        tuple(Requirement(key, Operator.IN, frozenset({value})) for key, value in node_selector.items()),
        node_rules(required, faulty) if required else None,
        has_faults=bool(faulty),
    )


def _parse(
    written: SelectorRequirement, path: str, operators: tuple[Operator, ...], faults: list[FieldError]
) -> Requirement:
    """Return the requirement; errors are added to the faults."""
    path = path.removeprefix(".")
    _check_key(written, path, faults)
    requirement = _rule(written, path, operators, faults)
    _check_values(written, path, faults, 0, len(written.values))
    return requirement


def _read(
    written: SelectorRequirement, path: str, operators: tuple[Operator, ...], faults: list[FieldError]
) -> Generator[None, None, Requirement]:
    """Return the requirement as `_parse` does, in steps of a limited number of values."""
    if len(written.values) <= _VALUES_A_STEP:
        return _parse(written, path, operators, faults)
    path = path.removeprefix(".")
    _check_key(written, path, faults)
    requirement = _rule(written, path, operators, faults)
    for start in range(0, len(written.values), _VALUES_A_STEP):
        _check_values(written, path, faults, start, start + _VALUES_A_STEP)
        yield
    return requirement


def _check_key(written: SelectorRequirement, path: str, faults: list[FieldError]) -> None:
    if not is_label_key(written.key):
        faults.append(FieldError(f"{path}.key", f"must be a label's key, was {written.key!r}"))


def _check_values(
    written: SelectorRequirement, path: str, faults: list[FieldError], start: int, end: int
) -> None:
    """Check the values in a range of indexes.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/labels/selector.go, validateLabelValue.
    """
    values = written.values[start:end]
    if not are_label_values(values):
        faults.extend(
            _invalid(f"{path}.values[{index}][{written.key}]", value, "; ".join(label_value_problems(value)))
            for index, value in enumerate(values, start)
            if not is_label_value(value)
        )


def _invalid(path: str, value: str, problem: str) -> FieldError:
    """Return the error of a value that the API server may have accepted, so that users see it: upstream's."""
    return FieldError(path, f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {problem}")


def _rule(
    written: SelectorRequirement, path: str, operators: tuple[Operator, ...], faults: list[FieldError]
) -> Requirement:
    """Return a requirement; its operator, and the values that the operator needs, are checked."""
    operator = _operator(written, path, operators, faults)
    if operator is None:
        return _NO_RULE
    count = len(written.values)
    bound: int | None = 0
    if operator in _WITH_VALUES:
        if not count:
            faults.append(FieldError(f"{path}.values", f"{operator.value} needs a value"))
    elif operator in _WITHOUT_VALUES:
        if count:
            faults.append(FieldError(f"{path}.values", f"{operator.value} takes no values, was {count}"))
    elif count != 1:
        faults.append(FieldError(f"{path}.values", f"{operator.value} needs one value, was {count}"))
    else:
        bound = parse_int64(written.values[0])
        if bound is None:
            problem = "for 'Gt', 'Lt' operators, the value must be an integer"
            faults.append(_invalid(f"{path}.values[0]", written.values[0], problem))
    return Requirement(written.key, operator, frozenset(written.values), bound or 0)


def _parse_field(written: SelectorRequirement, path: str, faults: list[FieldError]) -> Requirement:
    path = path.removeprefix(".")
    operator = _operator(written, path, _FIELD_OPERATORS, faults)
    if operator is None:
        return _NO_RULE
    if len(written.values) != 1:
        faults.append(FieldError(f"{path}.values", f"must have one element, was {len(written.values)}"))
    return Requirement(written.key, operator, frozenset(written.values))


def _operator(
    written: SelectorRequirement, path: str, operators: tuple[Operator, ...], faults: list[FieldError]
) -> Operator | None:
    operator = _BY_NAME.get(written.operator)
    if operator in operators:
        return operator
    known = ", ".join(operator.value for operator in operators)
    faults.append(FieldError(f"{path}.operator", f"must be one of {known}, was {written.operator!r}"))
    return None
