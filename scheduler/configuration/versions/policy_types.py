"""The Policy object: predicates, priorities and extenders by the names they had before there were plugins.

Source:
    kube-scheduler v1.22, staging/src/k8s.io/kube-scheduler/config/v1/types.go.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from scheduler.configuration.types import ConfigurationStruct

_MAX_INT32 = 2**31 - 1


class ServiceAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Pods of a service on nodes with equal values of these labels."""

    labels: tuple[str, ...] = ()


class LabelsPresence(ConfigurationStruct, frozen=True, kw_only=True):
    """Nodes that have all of these labels, or none of them."""

    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """What makes a predicate one of the user's own; one of the two."""

    service_affinity: ServiceAffinity | None = None
    labels_presence: LabelsPresence | None = None


class Predicate(ConfigurationStruct, frozen=True, kw_only=True):
    """What a node must fulfil."""

    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinity(ConfigurationStruct, frozen=True, kw_only=True):
    """Pods of a service spread over the values of a label."""

    label: str = ""


class LabelPreference(ConfigurationStruct, frozen=True, kw_only=True):
    """Nodes preferred for having a label, or for not having it."""

    label: str = ""
    presence: bool = False


class RequestedToCapacityRatioArguments(ConfigurationStruct, frozen=True, kw_only=True):
    """How scores follow from the share of resources that is requested; entries as NodeResourcesFit has them."""

    shape: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()


class PriorityArgument(ConfigurationStruct, frozen=True, kw_only=True):
    """What makes a priority one of the user's own; one of the three."""

    service_anti_affinity: ServiceAntiAffinity | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArguments | None = None


class Priority(ConfigurationStruct, frozen=True, kw_only=True):
    """How nodes rank."""

    name: str = ""
    weight: Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT32)]
    argument: PriorityArgument | None = None


class Policy(ConfigurationStruct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        predicates: None stands for the default ones, an empty list for those that cannot be left out.
        priorities: None stands for the default ones, an empty list for none.
        extenders: as a configuration has them, but for `enableHttps`, and `httpTimeout` in nanoseconds.
        hard_pod_affinity_symmetric_weight: 0 stands for the default.
    """

    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: tuple[dict[str, Any], ...] = ()
    hard_pod_affinity_symmetric_weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    always_check_all_predicates: bool = False
