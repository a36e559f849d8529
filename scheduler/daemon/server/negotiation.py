"""Content negotiation by the Accept header.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from scheduler.daemon.server.messages import JSON, status_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.daemon.server.messages import ServerResponse

TEXT = "text/plain"
YAML = "application/yaml"
_SERVED = (JSON, YAML, TEXT)
_VERSIONS = ("v1beta1", "v1alpha1")


class Form(NamedTuple):
    """The media type of a response, and, unless it is text, the version of its kind."""

    media_type: str
    version: str = ""


class _Wanted(NamedTuple):
    """One clause of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]
    quality: float


def negotiated(accept: str, group: str, kind: str) -> Form | None:
    """Return the form of an endpoint that serves text, and a kind of a group by the parameters `as`, `g` and `v`.

    None if no accepted form is served; an empty header means text.
    """
    if not accept.strip():
        return Form(TEXT)
    for wanted in _clauses(accept):
        parameters = wanted.parameters
        if parameters.get("stream") or parameters.get("sv"):
            continue
        target = {name: value for name, value in parameters.items() if name in {"as", "g", "v"}}
        version = target.get("v", "")
        for served in _SERVED:
            if not _matches(wanted.media_type, served):
                continue
            if served == TEXT:
                if not target:
                    return Form(TEXT)
            elif version in _VERSIONS and target == {"as": kind, "g": group, "v": version}:
                return Form(served, version)
    return None


def not_acceptable() -> ServerResponse:
    """Return the error response with the served media types."""
    message = f"only the following media types are accepted: {', '.join(_SERVED)}"
    return status_answer(406, "NotAcceptable", message)


def _clauses(accept: str) -> list[_Wanted]:
    """Return the clauses by descending quality; on a tie, specific types come before wildcards."""
    found = [_clause(text) for text in accept.split(",")]
    return sorted(
        (each for each in found if "/" in each.media_type),
        key=lambda each: (-each.quality, each.media_type.startswith("*/"), each.media_type.endswith("/*")),
    )


def _clause(text: str) -> _Wanted:
    media_type, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for name, sign, value in (part.partition("=") for part in rest):
        if sign:
            parameters[name.strip()] = value.strip()
    quality = 1.0
    with suppress(ValueError):
        quality = float(parameters.pop("q", "1"))
    return _Wanted("*/*" if media_type == "*" else media_type, parameters, quality)


def _matches(wanted: str, served: str) -> bool:
    return wanted in {served, f"{served.partition('/')[0]}/*", "*/*"}
