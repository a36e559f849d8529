"""What to paste into kube-scheduler's configuration, so that it asks the extender that prints this."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from scheduler.app.extender.certificates import client_pair_in
from scheduler.app.extender.verdicts import weight_of
from scheduler.configuration.yaml_syntax import write
from scheduler.errors import ConfigurationError, FieldError
from scheduler.framework.points import ExtensionPoint
from scheduler.server.extender import BIND, FILTER, PREEMPT, PRIORITIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.app.extender.pages import ExtenderAddress
    from scheduler.runtime.framework import Framework

_TIMEOUT = "5s"
_FILTERING = (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER)
_HEAD = "# For the KubeSchedulerConfiguration that kube-scheduler reads with --config.\n"
_CERTIFICATE = (
    "# Add certFile and keyFile to tlsConfig: only those are answered who show a certificate that the authority\n"
    "# of --client-ca-file vouches for.\n"
)
_CERTIFICATE_MADE = (
    "# Only those are answered who show client.crt: copy it and client.key to where kube-scheduler runs, and put the paths\n"
    "# they have there into tlsConfig. Whoever has the key is answered.\n"
)
_BEARER_NOTE = (
    "# Only those are answered who bring the token of --token-file. kube-scheduler cannot: it shows certificates, see\n"
    "# --cert-dir and --client-ca-file. A token is for what stands between, as a proxy that adds it.\n"
)
_ANYBODY = "# Whoever reaches it is answered, as --allow-anybody says.\n"
_NOBODY_VOUCHES = (
    "# Without tlsConfig kube-scheduler believes whoever answers; its caData is the authority of --tls-ca-file, or of\n"
    "# --cert-dir, where a certificate that is made is kept.\n"
)
_ALL_NODES = (
    "# percentageOfNodesToScore is for the filter: kube-scheduler shows its extenders only the nodes it has found by then,\n"
    "# by default the first 420 that fit of 1000, and where these pass none the pod waits, whatever others would.\n"
)


def snippet(frameworks: Sequence[Framework], where: ExtenderAddress, authority: bytes = b"") -> str:
    """Return the `extenders:` section, with the verbs that the profiles have something to say to, and what a filter needs.

    Args:
        frameworks: the profiles.
        where: how kube-scheduler reaches the extender.
        authority: who vouches for its certificate, PEM; b"" if that is not known.

    Raises:
        ConfigurationError: the profiles have nothing to say at all.
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
        problem = "no profile has a plugin that filters or scores, so there is nothing to answer"
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
    """Return extension point -> plugins that a profile has there in vain: no scheduler asks an extender for them.

    Who binds pods runs Reserve, PreBind, Bind and PostBind.
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
