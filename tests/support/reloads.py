"""Offers of configurations to a daemon of the harness, as a source that follows one makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.reloader import Offer, Reloader, digest_of
from scheduler.kube.client.events import ObjectReference
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon

ABOUT = ObjectReference(kind="ConfigMap", namespace="default", name="cs", uid="u1", api_version="v1")


def reloader_of(daemon: Daemon, *, leader_elect: bool = False, **options: Any) -> Reloader:
    """Return one that settles what it is offered as the harness does; options are a Reloader's."""

    async def settle(configuration: Configuration) -> Configuration:
        return with_leader_election(configuration, leader_elect=leader_elect)

    return Reloader(daemon, settle=settle, clock=LoopClock(), **options)


def offer_of(text: str, folder: Path | None = None) -> Offer:
    """Return an offer of a configuration in YAML."""
    return Offer("a test", ABOUT, digest_of(text.encode(), ()), lambda: parse(text, "a test", folder))
