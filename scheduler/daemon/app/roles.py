"""Writes rights as RBAC objects in YAML, with the purpose of each rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.daemon.app.rights import Named, Right

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
