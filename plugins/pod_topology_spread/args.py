"""The arguments of PodTopologySpread.

Source:
    kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidatePodTopologySpreadArgs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.labels import is_label_key
from scheduler.objects.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, TopologySpreadConstraint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SYSTEM_DEFAULTING: Final = "System"
LIST_DEFAULTING: Final = "List"

SYSTEM_CONSTRAINTS: Final = (
    TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname", when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3
    ),
    TopologySpreadConstraint(
        topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5
    ),
)
"""The default constraints of pods without constraints of their own, unless configured otherwise."""


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """Arguments of PodTopologySpread.

    Attributes:
        default_constraints: the constraints of pods without their own; they have no selectors, because these are deduced
          for each pod.
        defaulting_type: "System" for SYSTEM_CONSTRAINTS, "List" for `default_constraints`; "" is "System".
    """

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = SYSTEM_DEFAULTING

    @property
    def is_system_defaulting(self) -> bool:
        return self.defaulting_type in {"", SYSTEM_DEFAULTING}

    @property
    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints of pods without constraints of their own."""
        return SYSTEM_CONSTRAINTS if self.is_system_defaulting else self.default_constraints

    def faults(self) -> Iterator[FieldError]:
        constraints = self.default_constraints
        if not self.is_system_defaulting and self.defaulting_type != LIST_DEFAULTING:
            yield FieldError(
                "defaultingType", _unsupported(self.defaulting_type, SYSTEM_DEFAULTING, LIST_DEFAULTING)
            )
        elif self.is_system_defaulting and constraints:
            yield FieldError(
                "defaultingType", _invalid(SYSTEM_DEFAULTING, "when .defaultConstraints are not empty")
            )
        for index, constraint in enumerate(constraints):
            yield from _constraint_faults(constraint, f"defaultConstraints[{index}]", constraints[:index])


def _constraint_faults(
    constraint: TopologySpreadConstraint, path: str, before: Sequence[TopologySpreadConstraint]
) -> Iterator[FieldError]:
    key, action = constraint.topology_key, constraint.when_unsatisfiable
    if constraint.max_skew <= 0:
        yield FieldError(f"{path}.maxSkew", _invalid(constraint.max_skew, "not in valid range (0, inf)"))
    if not key:
        yield FieldError(f"{path}.topologyKey", _REQUIRED)
    elif not is_label_key(key):
        yield FieldError(f"{path}.topologyKey", _invalid(key, "must be a label's key"))
    if not action:
        yield FieldError(f"{path}.whenUnsatisfiable", _REQUIRED)
    elif action not in {DO_NOT_SCHEDULE, SCHEDULE_ANYWAY}:
        yield FieldError(f"{path}.whenUnsatisfiable", _unsupported(action, DO_NOT_SCHEDULE, SCHEDULE_ANYWAY))
    if constraint.label_selector is not None:
        yield FieldError(
            f"{path}.labelSelector",
            "Forbidden: constraint must not define a selector, as they deduced for each pod",
        )
    if any(other.topology_key == key and other.when_unsatisfiable == action for other in before):
        yield FieldError(path, f'Duplicate value: "{{{key}, {action}}}"')


_REQUIRED: Final = "Required value: can not be empty"


def _invalid(value: object, why: str) -> str:
    return f"Invalid value: {_quoted(value)}: {why}"


def _unsupported(value: str, *supported: str) -> str:
    return f"Unsupported value: {_quoted(value)}: supported values: {', '.join(map(_quoted, supported))}"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
