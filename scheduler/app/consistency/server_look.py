"""What the watches have shown, beside what the API server says there is."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.app.consistency.findings import Finding, What
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.client.reflector import Reflector

    Version = tuple[str, str]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerLook:
    """One look at the versions of everything that is watched.

    Attributes:
        findings: what differed when the answer was there; what has just changed may be among them.
        of: each finding -> who reads that kind.
        compared: kind -> how many objects the API server has of it.
        unread: kind -> why it could not be compared.
    """

    findings: set[Finding] = field(default_factory=set)
    of: dict[Finding, Reflector[Any]] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


async def look_at_server(reflectors: Iterable[Reflector[Any]]) -> ServerLook:
    """Compare each kind, one after another; one that is being listed at present is left out, it will be right soon."""
    look = ServerLook()
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
                problem = f"the watch has shown {_told(shown.get(key))}, there is {_told(served.get(key))}"
                finding = Finding(What.WATCHED, f"{kind} {key}", problem)
                look.findings.add(finding)
                look.of[finding] = reflector
    return look


def _told(version: Version | None) -> str:
    return "none" if version is None else f"version {version[1]} of {version[0]}"
