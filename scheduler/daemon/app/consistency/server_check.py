"""Compares the watched objects with those in the API server."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.consistency.findings import Discrepancy, Finding
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.kube.client.reflector import Reflector

    Version = tuple[str, str]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerCheck:
    """The result of one comparison of all watched versions.

    Attributes:
        findings: the differences at the time of the answer, possibly including very recent changes.
        of: finding -> reflector of that kind.
        compared: kind -> number of objects of the kind in the API server.
        unread: kind -> why it could not be compared.
    """

    findings: set[Finding] = field(default_factory=set)
    of: dict[Finding, Reflector[Any]] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


async def check_server(reflectors: Iterable[Reflector[Any]]) -> ServerCheck:
    """Compare each kind, one after another; skip a kind that is being listed, which corrects it anyway."""
    look = ServerCheck()
    for reflector in reflectors:
        kind = str(reflector.resource)
        if not reflector.resource_version and not reflector.is_absent:
            look.unread[kind] = "it is being listed"
            continue
        try:
            served = await reflector.served_versions()
        except ApiError as error:
            look.unread[kind] = str(error)
            continue
        look.compared[kind] = len(served)
        shown = reflector.versions
        if shown == served or not reflector.resource_version:
            continue
        for key in shown.keys() | served.keys():
            if shown.get(key) != served.get(key):
                finding = _finding(f"{kind} {key}", shown.get(key), served.get(key))
                look.findings.add(finding)
                look.of[finding] = reflector
    return look


def _finding(key: str, shown: Version | None, served: Version | None) -> Finding:
    what = (
        Discrepancy.MISSED
        if shown is None
        else Discrepancy.REDUNDANT
        if served is None
        else Discrepancy.WATCHED
    )
    return Finding(what, key, f"the watch has shown {_text(shown)}, the API server has {_text(served)}")


def _text(version: Version | None) -> str:
    return "none" if version is None else f"version {version[1]} of {version[0]}"
