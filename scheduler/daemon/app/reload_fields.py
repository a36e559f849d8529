"""The fields of a new configuration that a running daemon applies, and those that need a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.types import ConfigurationStruct, KubeSchedulerConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.configuration.load import Configuration

TAKEN = frozenset(
    {
        "profiles",
        "extenders",
        "percentage_of_nodes_to_score",
        "pod_initial_backoff_seconds",
        "pod_max_backoff_seconds",
        "attempt_budget",
        "node_pause_initial_seconds",
        "node_pause_max_seconds",
    }
)
"""Take effect from the next scheduling cycle on."""
WITHOUT_EFFECT = frozenset(
    {"parallelism", "enable_profiling", "enable_contention_profiling", "delay_cache_until_active"}
)
"""Accepted and shown, but without an effect."""
AT_START = frozenset({"leader_election", "client_connection", "feature_gates"})
"""Part of connections, the lease and the watches since the start of the process."""


def keep_what_needs_a_restart(
    new: Configuration, running: Configuration
) -> tuple[Configuration, tuple[str, ...]]:
    """Return a new configuration with the running one's values of fields that cannot change.

    Returns:
        The configuration to activate, and the paths of the fields that keep their values, as in
        `leaderElection.leaseDuration`.
    """
    kept = {name: getattr(running.settings, name) for name in sorted(AT_START)}
    paths = [
        path
        for name, value in kept.items()
        for path in _differences(getattr(new.settings, name), value, _key(KubeSchedulerConfiguration, name))
    ]
    return replace(new, settings=msgspec.structs.replace(new.settings, **kept)), tuple(paths)


def _differences(new: Any, old: Any, path: str) -> Iterator[str]:
    if new == old:
        return
    if not isinstance(new, ConfigurationStruct):
        yield path
        return
    for name in new.__struct_fields__:
        yield from _differences(getattr(new, name), getattr(old, name), f"{path}.{_key(type(new), name)}")


def _key(struct: type[ConfigurationStruct], name: str) -> str:
    """Return a field's name in the file."""
    return dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))[name]
