"""The default roles and bindings of a cluster with RBAC that schedulers and their users need.

Source:
    kube-apiserver v1.36, plugin/pkg/auth/authorizer/rbac/bootstrappolicy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.access.rbac import AUTHENTICATED, EVERYTHING, MASTERS, UNAUTHENTICATED
from scheduler.tools.simulator.apimachinery.objects import names
from scheduler.tools.simulator.kinds.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.tools.simulator.access.rbac import Rule
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.store import Store

_READ: Final = "get list watch"
_WRITE: Final = "create delete deletecollection patch update"
_EVENTS: Final = "create patch update"
_DEFAULTS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AUTOUPDATE: Final = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"


def _on(groups: str, resources: str, verbs: str, names: str = "") -> Rule:
    """Return a rule; lists are separated by spaces, and `core` is the core group."""
    listed = ["" if group == "core" else group for group in groups.split()]
    rule: Rule = {"verbs": verbs.split(), "apiGroups": listed, "resources": resources.split()}
    return rule | ({"resourceNames": names.split()} if names else {})


def _at(*paths: str) -> Rule:
    return {"verbs": ["get"], "nonResourceURLs": list(paths)}


_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_SCALED: Final = "deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"

_CLUSTER_ROLES: Final[dict[str, list[Rule]]] = {
    "cluster-admin": EVERYTHING,
    "system:aggregate-to-admin": [
        _on("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        _on(GROUP, "rolebindings roles", f"{_READ} {_WRITE}"),
    ],
    "system:aggregate-to-edit": [
        _on("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", _READ),
        _on("core", "serviceaccounts", "impersonate"),
        _on("core", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
        _on("core", "pods/eviction serviceaccounts/token", "create"),
        _on(
            "core",
            "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
            "serviceaccounts services services/proxy",
            _WRITE,
        ),
        _on("apps", f"daemonsets deployments/rollback {_SCALED}", _WRITE),
        _on("autoscaling", "horizontalpodautoscalers", _WRITE),
        _on("batch", "cronjobs jobs", _WRITE),
        _on("policy", "poddisruptionbudgets", _WRITE),
        _on("networking.k8s.io", "ingresses networkpolicies", _WRITE),
        _on("coordination.k8s.io", "leases", f"{_READ} {_WRITE}"),
        _on("resource.k8s.io", "resourceclaims resourceclaimtemplates", _WRITE),
        _on("scheduling.k8s.io", "compositepodgroups podgroups workloads", _WRITE),
    ],
    "system:aggregate-to-view": [
        _on(
            "core",
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
            "replicationcontrollers/scale serviceaccounts services services/status",
            _READ,
        ),
        _on(
            "core",
            "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
            "resourcequotas resourcequotas/status namespaces",
            _READ,
        ),
        _on("discovery.k8s.io", "endpointslices", _READ),
        _on(
            "apps",
            f"controllerrevisions daemonsets daemonsets/status {_SCALED} deployments/status replicasets/status "
            "statefulsets/status",
            _READ,
        ),
        _on("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
        _on("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
        _on("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
        _on("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
        _on("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", _READ),
        _on(
            "scheduling.k8s.io",
            "compositepodgroups compositepodgroups/status podgroups podgroups/status workloads",
            _READ,
        ),
    ],
    "system:auth-delegator": [
        _on("authentication.k8s.io", "tokenreviews", "create"),
        _on("authorization.k8s.io", "subjectaccessreviews", "create"),
    ],
    "system:basic-user": [
        _on("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        _on("authentication.k8s.io", "selfsubjectreviews", "create"),
    ],
    "system:discovery": [_at("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)],
    "system:public-info-viewer": [_at(*_HEALTH)],
    "system:monitoring": [
        _at(*names("/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"))
    ],
    "system:kube-scheduler": [
        _on("core events.k8s.io", "events", _EVENTS),
        _on("coordination.k8s.io", "leases", "create"),
        _on("coordination.k8s.io", "leases", f"update {_READ}", "kube-scheduler"),
        _on("core", "nodes namespaces replicationcontrollers services", _READ),
        _on("core", "pods", f"delete {_READ}"),
        _on("core", "bindings pods/binding", "create"),
        _on("core", "pods/status", "patch update"),
        _on("apps extensions", "replicasets", _READ),
        _on("apps", "statefulsets", _READ),
        _on("policy", "poddisruptionbudgets", _READ),
        _on("core", "persistentvolumeclaims persistentvolumes", _READ),
        _on("authentication.k8s.io", "tokenreviews", "create"),
        _on("authorization.k8s.io", "subjectaccessreviews", "create"),
        _on("storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments", _READ),
        _on("resource.k8s.io", "deviceclasses devicetaintrules resourceslices", _READ),
        _on("resource.k8s.io", "resourceclaims resourceclaims/status", f"{_READ} patch update"),
        _on("resource.k8s.io", "resourceclaims", "create delete"),
        _on("resource.k8s.io", "resourceclaims/binding", "patch update"),
        _on("core", "pods/finalizers", "update"),
        _on("scheduling.k8s.io", "compositepodgroups podgroups", _READ),
        _on("scheduling.k8s.io", "podgroups/status", "patch update"),
    ],
    "system:volume-scheduler": [
        _on("core", "persistentvolumes persistentvolumeclaims", f"{_READ} patch update"),
        _on("storage.k8s.io", "storageclasses", _READ),
    ],
}
_AGGREGATED: Final = {"admin": "", "edit": "admin", "view": "edit"}
"""Aggregated roles: name -> the aggregated role that it is a part of."""

_CLUSTER_BINDINGS: Final = {
    "cluster-admin": [("Group", MASTERS)],
    "system:discovery": [("Group", AUTHENTICATED)],
    "system:basic-user": [("Group", AUTHENTICATED)],
    "system:public-info-viewer": [("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)],
    "system:monitoring": [("Group", "system:monitoring")],
    "system:kube-scheduler": [("User", "system:kube-scheduler")],
    "system:volume-scheduler": [("User", "system:kube-scheduler")],
}
_AUTHENTICATION: Final = "extension-apiserver-authentication"
_LOCKING: Final = "system::leader-locking-kube-scheduler"
_ROLES: Final[dict[str, list[Rule]]] = {
    f"{_AUTHENTICATION}-reader": [_on("core", "configmaps", _READ, _AUTHENTICATION)],
    _LOCKING: [_on("coordination.k8s.io", "leases leasecandidates", f"{_READ} create update")],
}
_BINDINGS: Final = {_LOCKING: _LOCKING, f"system::{_AUTHENTICATION}-reader": f"{_AUTHENTICATION}-reader"}


def bootstrap_rbac(store: Store) -> None:
    """Create the roles, the bindings, and the ConfigMap with the authentication settings of API servers."""
    for role in _cluster_roles():
        store.create(f"clusterroles.{GROUP}", role)
    for name, subjects in _CLUSTER_BINDINGS.items():
        store.create(f"clusterrolebindings.{GROUP}", _binding(name, "ClusterRole", subjects))
    for name, rules in _ROLES.items():
        store.create(f"roles.{GROUP}", _named(name) | {"rules": rules}, namespace="kube-system")
    for binding, bound in _BINDINGS.items():
        obj = _binding(binding, "Role", [("User", "system:kube-scheduler")], bound)
        store.create(f"rolebindings.{GROUP}", obj, namespace="kube-system")
    store.create("configmaps", {"metadata": {"name": _AUTHENTICATION}}, namespace="kube-system")


def _cluster_roles() -> Iterator[Object]:
    for name, rules in _CLUSTER_ROLES.items():
        part_of = name.partition("system:aggregate-to-")[2]
        yield _named(name, part_of) | {"rules": rules}
    for name, part_of in _AGGREGATED.items():
        selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
        yield _named(name, part_of) | {"aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []}


def _named(name: str, part_of: str = "") -> Object:
    labels = _DEFAULTS | ({f"{_AGGREGATE}{part_of}": "true"} if part_of else {})
    return {"metadata": {"name": name, "labels": labels, "annotations": _AUTOUPDATE}}


def _binding(name: str, kind: str, subjects: list[tuple[str, str]], role: str = "") -> Object:
    return _named(name) | {
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role or name},
        "subjects": [{"kind": who, "apiGroup": GROUP, "name": whom} for who, whom in subjects],
    }
