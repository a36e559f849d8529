"""The Policy object: predicates, priorities and extenders with the names that precede plugins.

Source:
    kube-scheduler v1.22, staging/src/k8s.io/kube-scheduler/config/v1/types.go.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from scheduler.configuration.types import ConfigurationStruct

_MAX_INT32 = 2**31 - 1


class ServiceAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Places pods of a service on nodes with equal values of these labels."""

    labels: tuple[str, ...] = ()


class LabelsPresence(ConfigurationStruct, frozen=True, kw_only=True):
    """Requires nodes with all of these labels, or with none of them."""

    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """The argument of a custom predicate; exactly one field is set."""

    service_affinity: ServiceAffinity | None = None
    labels_presence: LabelsPresence | None = None


class Predicate(ConfigurationStruct, frozen=True, kw_only=True):
    """A condition for nodes."""

    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Spreads pods of a service over the values of a label."""

    label: str = ""


class LabelPreference(ConfigurationStruct, frozen=True, kw_only=True):
    """Prefers nodes with a label, or without it."""

    label: str = ""
    presence: bool = False


class RequestedToCapacityRatioArguments(ConfigurationStruct, frozen=True, kw_only=True):
    """The score as a function of the requested share of resources; entries as in NodeResourcesFit."""

    shape: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()


class PriorityArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """The argument of a custom priority; exactly one field is set."""

    service_anti_affinity: ServiceAntiAffinity | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArguments | None = None


class Priority(ConfigurationStruct, frozen=True, kw_only=True):
    """A score for nodes."""

    name: str = ""
    weight: Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT32)]
    argument: PriorityArgument | None = None


class Policy(ConfigurationStruct, frozen=True, kw_only=True):
    """A policy.

    Attributes:
        predicates: None for the default ones, an empty list for the mandatory ones only.
        priorities: None for the default ones, an empty list for none.
        extenders: as in a configuration, but with `enableHttps`, and `httpTimeout` in nanoseconds.
        hard_pod_affinity_symmetric_weight: 0 for the default.
    """

    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: tuple[dict[str, Any], ...] = ()
    hard_pod_affinity_symmetric_weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    always_check_all_predicates: bool = False
