"""Objects of our kinds that an API server has to refuse: the same table for the simulated one and for a real one."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import yaml

from tests.support.manifests import MANIFESTS

GROUP: Final = "custom-scheduler.io/v1alpha1"


class Kind(NamedTuple):
    """One of our kinds: where it is defined, and how the definition is named."""

    file: str
    api_version: str
    kind: str
    right: dict[str, Any]
    namespace: str = ""

    @property
    def definition(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((MANIFESTS / "crds" / self.file).read_text())
        return loaded

    def with_spec(self, spec: object, name: str = "it") -> dict[str, Any]:
        """Return an object of the kind."""
        place = {"namespace": self.namespace} if self.namespace else {}
        meta = {"name": name, **place}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": meta, "spec": spec}


QUEUE: Final = Kind(
    "queues.yaml",
    GROUP,
    "Queue",
    {
        "parent": "root",
        "weight": 2,
        "min": {"cpu": 1, "memory": "1Gi"},
        "max": {"cpu": "1500m"},
        "namespaces": ["a", "b"],
        "podSelector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
        },
    },
)
QUOTA: Final = Kind(
    "elasticquotas.yaml",
    "scheduling.x-k8s.io/v1alpha1",
    "ElasticQuota",
    {"min": {"cpu": 1, "memory": "1Gi"}, "max": {"cpu": "1500m", "nvidia.com/gpu": 2}},
    "default",
)
PROFILE: Final = Kind(
    "schedulerprofiles.yaml",
    GROUP,
    "SchedulerProfile",
    {"schedulerName": "batch", "plugins": {"score": {"disabled": [{"name": "*"}]}}},
)
KINDS: Final = (QUEUE, QUOTA, PROFILE)


class Wrong(NamedTuple):
    """A spec that is refused, the field that is named, and what the case is called; by a CEL rule, or else by types alone."""

    kind: Kind
    spec: object
    field: str
    title: str
    by_rule: bool = False


def _selects(**expression: Any) -> dict[str, Any]:
    return {"podSelector": {"matchExpressions": [expression]}}


def _enables(*names: object, point: str = "filter") -> dict[str, Any]:
    return {
        "schedulerName": "batch",
        "plugins": {point: {"enabled": [{"name": name} for name in names]}},
    }


WRONG: Final = (
    Wrong(QUEUE, None, "spec", "no spec"),
    Wrong(QUEUE, [], "spec", "a list for a spec"),
    Wrong(QUEUE, {"parent": "it"}, "spec.parent", "part of itself", by_rule=True),
    Wrong(QUEUE, {"parent": 7}, "spec.parent", "a number for a parent"),
    Wrong(QUEUE, {"parent": "p" * 254}, "spec.parent", "a parent's name that is too long"),
    Wrong(QUEUE, {"weight": 0}, "spec.weight", "no weight"),
    Wrong(QUEUE, {"weight": -1}, "spec.weight", "a weight below nothing"),
    Wrong(QUEUE, {"weight": 1.5}, "spec.weight", "half a weight"),
    Wrong(QUEUE, {"weight": "2"}, "spec.weight", "a text for a weight"),
    Wrong(QUEUE, {"weight": 2**31}, "spec.weight", "a weight of more than 32 bits"),
    Wrong(QUEUE, {"min": {"cpu": "many"}}, "spec.min.cpu", "no quantity"),
    Wrong(QUEUE, {"min": {"cpu": 0.5}}, "spec.min.cpu", "a fraction for a quantity"),
    Wrong(QUEUE, {"max": {"cpu": "-1"}}, "spec.max.cpu", "less than nothing"),
    Wrong(QUEUE, {"max": {"cpu": True}}, "spec.max.cpu", "true for an amount"),
    Wrong(QUEUE, {"max": ["cpu"]}, "spec.max", "a list for amounts"),
    Wrong(
        QUEUE,
        {"max": {f"example.com/{n}": 1 for n in range(65)}},
        "spec.max",
        "amounts of too many resources",
    ),
    Wrong(QUEUE, {"namespaces": "a"}, "spec.namespaces", "a text for namespaces"),
    Wrong(QUEUE, {"namespaces": ["a", "a"]}, r"spec.namespaces\[1\]", "a namespace twice"),
    Wrong(QUEUE, {"namespaces": [""]}, r"spec.namespaces\[0\]", "a namespace without a name"),
    Wrong(QUEUE, {"namespaces": ["n" * 64]}, r"spec.namespaces\[0\]", "a namespace's name that is too long"),
    Wrong(QUEUE, _selects(key="a", operator="Like"), "operator", "no operator of selectors"),
    Wrong(QUEUE, _selects(operator="Exists"), "key", "an expression without a key"),
    Wrong(QUEUE, _selects(key="a"), "operator", "an expression without an operator"),
    Wrong(QUEUE, {"podSelector": {"matchLabels": {"a": 1}}}, "matchLabels.a", "a number for a label"),
    Wrong(QUOTA, [], "spec", "a list for a quota's spec"),
    Wrong(QUOTA, {"min": {"cpu": "many"}}, "spec.min.cpu", "no quantity in a quota"),
    Wrong(QUOTA, {"min": {"cpu": 1.5}}, "spec.min.cpu", "a fraction in a quota"),
    Wrong(QUOTA, {"max": {"cpu": True}}, "spec.max.cpu", "true in a quota"),
    Wrong(QUOTA, {"max": {"cpu": ""}}, "spec.max.cpu", "an empty amount in a quota"),
    Wrong(QUOTA, {"max": {"memory": "1 Gi"}}, "spec.max.memory", "a blank in a quota's amount"),
    Wrong(QUOTA, {"max": ["cpu"]}, "spec.max", "a list for a quota's max"),
    Wrong(PROFILE, None, "spec", "a profile without a spec"),
    Wrong(PROFILE, {}, "spec.schedulerName", "a profile without a name of a scheduler"),
    Wrong(PROFILE, {"schedulerName": ""}, "spec.schedulerName", "an empty name of a scheduler"),
    Wrong(PROFILE, {"schedulerName": "s" * 254}, "spec.schedulerName", "a scheduler's name that is too long"),
    Wrong(
        PROFILE,
        {"schedulerName": "default-scheduler"},
        "spec.schedulerName",
        "the cluster's own scheduler",
        by_rule=True,
    ),
    Wrong(
        PROFILE,
        {"schedulerName": "b", "percentageOfNodesToScore": 101},
        "spec.percentageOfNodesToScore",
        "more than all nodes",
    ),
    Wrong(
        PROFILE,
        {"schedulerName": "b", "percentageOfNodesToScore": "all"},
        "spec.percentageOfNodesToScore",
        "a text for a percentage",
    ),
    Wrong(
        PROFILE, _enables("*"), r"spec.plugins.filter.enabled\[0\].name", "every plugin enabled", by_rule=True
    ),
    Wrong(PROFILE, _enables(""), r"spec.plugins.filter.enabled\[0\].name", "a plugin without a name"),
    Wrong(PROFILE, _enables("A", "A"), r"spec.plugins.filter.enabled\[1\]", "a plugin twice"),
    Wrong(PROFILE, _enables("A", "B", point="queueSort"), "spec.plugins.queueSort.enabled", "two orders"),
)
"""What the schemas refuse; what only the scheduler can tell, as a parent that is missing, is told in status."""
