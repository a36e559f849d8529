"""Validation of label selectors and node selectors.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go, and
    pkg/apis/core/validation/validation.go for those of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.causes import Cause, forbidden_field, invalid_value, required
from scheduler.simulator.apimachinery.metadata import (
    dns_subdomain,
    validate_label_name,
    validate_label_value,
    validate_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object

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
