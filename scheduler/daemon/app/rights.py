"""The RBAC rights that a configuration needs, these as RBAC objects in YAML, and their check on a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import yaml

from scheduler.daemon.app.default_scheduler import DEFAULT_LEASE, DEFAULT_SCHEDULER
from scheduler.kube.client.resources import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SCHEDULER_PROFILES,
    SHARD_ASSIGNMENTS,
    Resource,
)
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.configuration.types import KubeSchedulerConfiguration
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.interface import Needs
    from scheduler.kube.client.requests import Requests

_CORE: Final = "v1"


class Named(NamedTuple):
    """One object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Right(NamedTuple):
    """One verb for one kind, or for one object of it.

    Attributes:
        verb: the verb, as in RBAC.
        group: the API group; "" for core.
        resource: the plural, with an optional subresource: `pods/binding`.
        namespace: "" for all namespaces, and for cluster-scoped kinds.
        name: name of one object; "" for all.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        kind = f"{plural}.{self.group}{slash}{subresource}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {kind}{named}{f' in {self.namespace}' if self.namespace else ''}"


def rights_of(
    frameworks: Iterable[Framework],
    settings: KubeSchedulerConfiguration,
    *,
    config_map: Named | None,
    policy: Named | None = None,
    scheduler_profiles: bool = False,
) -> dict[Right, str]:
    """Return all rights that the daemon needs with a configuration -> their purpose, or the plugins that need them.

    The daemon's own rights come first.

    Args:
        frameworks: its profiles, plugins included.
        settings: the configuration.
        config_map: the watched ConfigMap, if any.
        policy: the ConfigMap with the policy of an old configuration, if any.
        scheduler_profiles: whether SchedulerProfiles are watched.

    Raises:
        ValueError: a plugin's `needs` contain an invalid kind or right.
    """
    own = {right: reason for reason, right in _own(settings, config_map, policy)}
    if scheduler_profiles:
        own |= _PROFILES
    return own | _of_plugins(frameworks, own.keys())


def rights_of_shadow(frameworks: Iterable[Framework]) -> dict[Right, str]:
    """Return all rights that a shadow needs with some profiles: it only reads.

    Raises:
        ValueError: a plugin's `needs` contain an invalid kind or right.
    """
    cluster = [Right(verb, each.group, each.plural) for each in (NODES, PODS) for verb in ("list", "watch")]
    of_plugins = _of_plugins(frameworks, set(cluster))
    reading = {right: names for right, names in of_plugins.items() if right.verb in _READING}
    return dict.fromkeys(cluster, "the cluster") | reading


def _of_plugins(frameworks: Iterable[Framework], known: AbstractSet[Right]) -> dict[Right, str]:
    """Return the additional rights of plugins, and the plugins that need them."""
    users: dict[Right, dict[str, None]] = {}
    for framework in frameworks:
        for plugin in framework.plugins.all():
            for right in sorted(rights_of_needs(plugin.needs) - known):
                users.setdefault(right, {})[plugin.name] = None
    return {right: ", ".join(names) for right, names in users.items()}


def rights_of_needs(needs: Needs) -> set[Right]:
    """Return the rights that plugins need.

    Raises:
        ValueError: a kind or a right is invalid.
    """
    named = [*needs.rights, *(f"{verb} {kind}" for kind in needs.kinds for verb in ("list", "watch"))]
    return {_parsed(text) for text in named}


def _parsed(text: str) -> Right:
    """Parse a right in the format of `Needs.rights`; the version is only for people."""
    verb, _, kind = text.partition(" ")
    parts = kind.split("/")
    if parts[0] == _CORE:
        parts.insert(0, "")
    if not verb or len(parts) not in {3, 4} or not all(parts[1:]) or any(" " in part for part in parts):
        raise ValueError(
            f"a right is a verb and version/plural or group/version/plural, perhaps /subresource, was {text!r}"
        )
    return Right(verb, parts[0], "/".join(parts[2:]))


def _own(
    settings: KubeSchedulerConfiguration, config_map: Named | None, policy: Named | None
) -> Iterator[tuple[str, Right]]:
    """Yield the rights without plugins: purpose and right."""
    for resource in (NODES, PODS):
        for verb in ("list", "watch"):
            yield "the cluster", Right(verb, resource.group, resource.plural)
    yield "check pods after a lost response", Right("get", PODS.group, PODS.plural)
    yield "conditions of pods", Right("patch", PODS.group, f"{PODS.plural}/status")
    for verb in ("create", "patch"):
        yield "events", Right(verb, EVENTS.group, EVENTS.plural)
    yield from _on_leases(settings)
    if any(profile.scheduler_name == DEFAULT_SCHEDULER for profile in settings.profiles):
        yield "detect a running kube-scheduler", Right("get", *_LEASES, *DEFAULT_LEASE)
    if config_map is not None:
        for verb in ("get", "list", "watch"):
            yield "the configuration", Right(verb, "", "configmaps", *config_map)
    if policy is not None:
        yield "the policy", Right("get", "", "configmaps", *policy)


def _on_leases(settings: KubeSchedulerConfiguration) -> Iterator[tuple[str, Right]]:
    election, kind = settings.leader_election, (SHARD_ASSIGNMENTS.group, SHARD_ASSIGNMENTS.plural)
    where, name = election.resource_namespace, election.resource_name
    if settings.sharding.enabled:
        for verb in ("get", "list", "watch", "create", "update", "delete"):
            yield "the Leases of all replicas, whose names are not known before", Right(verb, *_LEASES, where)
        yield "the owners of buckets; RBAC cannot restrict create by name", Right("create", *kind)
        for verb in ("get", "list", "watch", "update"):
            yield "the owners of buckets", Right(verb, *kind, name=name)
    elif election.leader_elect:
        yield "leader election; RBAC cannot restrict create by name", Right("create", *_LEASES, where)
        for verb in ("get", "watch", "update"):
            yield "leader election", Right(verb, *_LEASES, where, name)
        for verb in ("get", "update"):
            yield "wait until replicas with sharding have stopped", Right(verb, *kind, name=name)


_READING: Final = ("get", "list", "watch")
_LEASES: Final = (LEASES.group, LEASES.plural)
_PROFILES: Final = {
    Right("list", SCHEDULER_PROFILES.group, SCHEDULER_PROFILES.plural): "SchedulerProfiles",
    Right("watch", SCHEDULER_PROFILES.group, SCHEDULER_PROFILES.plural): "SchedulerProfiles",
    Right(
        "patch", SCHEDULER_PROFILES.group, f"{SCHEDULER_PROFILES.plural}/status"
    ): "status of SchedulerProfiles",
}


_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_HEAD: Final = """\
# The rights that the daemon needs with this configuration, and no others: the output of `custom-scheduler check --rbac`.
"""
_OBJECT: Final = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata: {metadata}
"""
_DELEGATOR: Final = "system:auth-delegator"


def roles_yaml(rights: Mapping[Right, str], account: Named) -> str:
    """Return a ClusterRole, a Role for each namespace, and their bindings to a ServiceAccount; all have its name.

    The account may also send access reviews for the clients of its HTTP endpoints.

    Args:
        rights: right -> purpose.
        account: the ServiceAccount.
    """
    places = sorted({right.namespace for right in rights} | {""})
    roles = [_role(account.name, place, _of_place(rights, place)) for place in places]
    bindings = [_binding(account.name, account, place) for place in places]
    delegator = _binding(f"{account.name}-auth-delegator", account, "", _DELEGATOR)
    asking = f"# authentication and authorization of HTTP clients by the API server\n{delegator}"
    return _HEAD + "---\n".join([*roles, *bindings, asking])


def rules_yaml(rights: Mapping[Right, str]) -> str:
    """Return the rules for rights of one namespace, each below its purpose."""
    lines: list[str] = []
    for reason in dict.fromkeys(rights.values()):
        lines.append(f"# {reason}")
        for rule in _rules(right for right, what_for in rights.items() if what_for == reason):
            lines.extend(
                f"{'  ' if i else '- '}{field}: {_flow(rule[field])}" for i, field in enumerate(rule)
            )
    return "".join(f"{line}\n" for line in lines)


def _of_place(rights: Mapping[Right, str], namespace: str) -> dict[Right, str]:
    return {right: reason for right, reason in rights.items() if right.namespace == namespace}


def _rules(rights: Iterable[Right]) -> list[dict[str, Sequence[str]]]:
    """Return the fewest rules: kinds of one group with the same verbs share a rule."""
    verbs_of: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        verbs_of.setdefault((right.group, right.name, right.resource), []).append(right.verb)
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, resource), verbs in verbs_of.items():
        resources.setdefault((group, name, tuple(sorted(verbs, key=_order))), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": kinds,
            **({"resourceNames": [name]} if name else {}),
            "verbs": verbs,
        }
        for (group, name, verbs), kinds in resources.items()
    ]


def _order(verb: str) -> tuple[int, str]:
    return (_VERBS.index(verb) if verb in _VERBS else len(_VERBS)), verb


def _role(name: str, namespace: str, rights: Mapping[Right, str]) -> str:
    kind = "Role" if namespace else "ClusterRole"
    return f"{_object(kind, name, namespace)}rules:\n{rules_yaml(rights)}"


def _binding(name: str, account: Named, namespace: str, role: str = "") -> str:
    kind = "Role" if namespace else "ClusterRole"
    subject = f"{{kind: ServiceAccount, name: {_text(account.name)}, namespace: {_text(account.namespace)}}}"
    return (
        f"{_object(f'{kind}Binding', name, namespace)}"
        f"roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {_text(role or name)}}}\n"
        f"subjects: [{subject}]\n"
    )


def _object(kind: str, name: str, namespace: str) -> str:
    where = f", namespace: {_text(namespace)}" if namespace else ""
    return _OBJECT.format(kind=kind, metadata=f"{{name: {_text(name)}{where}}}")


def _flow(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """Return a text as an item of a YAML list on one line."""
    return yaml.dump([text], Dumper=yaml.SafeDumper, default_flow_style=True, width=10_000).strip()[1:-1]


_SELF = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_OTHERS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_ACCOUNT_PREFIX = "system:serviceaccount:"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def missing_rights(requests: Requests, rights: Iterable[Right], *, user: str = "") -> list[Right]:
    """Return the rights that a user lacks.

    Args:
        requests: sends requests to the API server.
        rights: the rights to check.
        user: the user; "" for the client itself, which every client may check.

    Raises:
        ApiError: the API server does not answer, or denies the review.
    """
    return [right for right in rights if not await _has(requests, right, user)]


async def _has(requests: Requests, right: Right, user: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    review = _SELF
    if user:
        review = _OTHERS
        spec |= {"user": user, "groups": _groups(user)}
    body = {"apiVersion": review.api_version, "kind": review.kind, "spec": spec}
    answer = await requests.send(Request("POST", review.path(), msgspec.json.encode(body)))
    return msgspec.json.decode(answer.body, type=_Review).status.allowed


def _groups(user: str) -> list[str]:
    """Return the groups that the API server would assign to a user."""
    groups = ["system:authenticated"]
    if user.startswith(_ACCOUNT_PREFIX):
        namespace = user.removeprefix(_ACCOUNT_PREFIX).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return groups
