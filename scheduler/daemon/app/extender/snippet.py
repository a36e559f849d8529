"""The part of kube-scheduler's configuration that makes it call the extender."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from scheduler.configuration.yaml_text import write
from scheduler.daemon.app.extender.certificates import client_pair_in
from scheduler.daemon.app.extender.verb_results import weight_of
from scheduler.daemon.server.extender import BIND, FILTER, PREEMPT, PRIORITIZE
from scheduler.errors import ConfigurationError, FieldError
from scheduler.framework.interface import ExtensionPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.daemon.app.extender.pages import ExtenderAddress
    from scheduler.engine.runtime.framework import Framework

_TIMEOUT = "5s"
_FILTERING = (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER)
_HEAD = "# For the KubeSchedulerConfiguration that kube-scheduler reads with --config.\n"
_CERTIFICATE = (
    "# Add certFile and keyFile to tlsConfig: only clients with a certificate of the authority of --client-ca-file are\n"
    "# accepted.\n"
)
_CERTIFICATE_MADE = (
    "# Only clients with client.crt are accepted: copy it and client.key to the host of kube-scheduler, and put their\n"
    "# paths there into tlsConfig. Every holder of the key is accepted.\n"
)
_BEARER_NOTE = (
    "# Only clients with the token of --token-file are accepted. kube-scheduler sends no token but a certificate, see\n"
    "# --cert-dir and --client-ca-file. A token is for an intermediary, such as a proxy that adds it.\n"
)
_ANYBODY = "# Every client is accepted, because of --allow-anybody.\n"
_NOBODY_VOUCHES = (
    "# Without tlsConfig kube-scheduler trusts every server; its caData is the authority of --tls-ca-file, or of the\n"
    "# certificate that is created in --cert-dir.\n"
)
_ALL_NODES = (
    "# percentageOfNodesToScore is for the filter: kube-scheduler passes its extenders only the nodes it has found so far,\n"
    "# by default the first 420 feasible nodes of 1000. If the extender rejects all of these, the pod waits.\n"
)


def snippet(frameworks: Sequence[Framework], where: ExtenderAddress, authority: bytes = b"") -> str:
    """Return the `extenders:` section with the verbs that the profiles implement, and the settings that a filter needs.

    Args:
        frameworks: the profiles.
        where: the addresses and the accepted clients of the extender.
        authority: CA of its certificate, PEM; b"" if unknown.

    Raises:
        ConfigurationError: the profiles implement no verb.
    """
    extender: dict[str, Any] = {"urlPrefix": where.prefix}
    if any(framework.plugins.at.get(point) for framework in frameworks for point in _FILTERING):
        extender |= {"filterVerb": FILTER, "preemptVerb": PREEMPT}
    weight = weight_of(frameworks)
    if weight:
        extender |= {"prioritizeVerb": PRIORITIZE, "weight": weight}
    if where.binds:
        extender["bindVerb"] = BIND
    if len(extender) == 1:
        problem = "no profile has a plugin that filters or scores, so there is nothing to serve"
        raise ConfigurationError([FieldError("profiles", problem)])
    is_secure = where.prefix.startswith("https://")
    if is_secure:
        extender["enableHTTPS"] = True
        tls = {"caData": base64.b64encode(authority).decode()} if authority else {}
        if where.makes_clients and where.folder is not None:
            pair = client_pair_in(where.folder)
            tls |= {"certFile": str(pair.certificate), "keyFile": str(pair.key)}
        if tls:
            extender["tlsConfig"] = tls
    extender |= {"httpTimeout": _TIMEOUT, "nodeCacheCapable": True, "ignorable": False}
    notes = _who_is_answered(where)
    if is_secure and not authority:
        notes += _NOBODY_VOUCHES
    settings: dict[str, Any] = {"extenders": [extender]}
    if "filterVerb" in extender:
        notes += _ALL_NODES
        settings = {"percentageOfNodesToScore": 100, **settings}
    return f"{_HEAD}{notes}{write(settings).rstrip()}\n"


def _who_is_answered(where: ExtenderAddress) -> str:
    if where.answers_anybody:
        return _ANYBODY
    if where.makes_clients:
        return _CERTIFICATE_MADE
    return _BEARER_NOTE if where.client_authority is None else _CERTIFICATE


def points_not_run(frameworks: Iterable[Framework], *, binds: bool) -> dict[str, list[str]]:
    """Return extension point -> plugins of a profile that have no effect there, because extenders have no such verb.

    An extender that binds pods runs Reserve, PreBind, Bind and PostBind.
    """
    points = [ExtensionPoint.PERMIT]
    if not binds:
        points += [ExtensionPoint.RESERVE, ExtensionPoint.PRE_BIND, ExtensionPoint.POST_BIND]
    in_vain: dict[str, list[str]] = {}
    for framework in frameworks:
        for point in points:
            for plugin in framework.plugins.at.get(point, ()):
                names = in_vain.setdefault(point.value, [])
                if plugin.name not in names:
                    names.append(plugin.name)
    return in_vain
