"""What of a new configuration a running daemon takes, field by field, and what waits for a restart."""

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
"""In force from the next scheduling cycle on."""
WITHOUT_EFFECT = frozenset(
    {"parallelism", "enable_profiling", "enable_contention_profiling", "delay_cache_until_active"}
)
"""Taken and shown, though nothing here reads them."""
AT_START = frozenset({"leader_election", "client_connection", "feature_gates"})
"""Built into connections, the lease and what is watched when the process starts."""


def keep_what_needs_a_restart(
    new: Configuration, running: Configuration
) -> tuple[Configuration, tuple[str, ...]]:
    """Return a new configuration with the running one's fields where those cannot change.

    Returns:
        What can be in force now, and the paths of the fields that were left as they are, as in
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
    """What the file calls a field."""
    return dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))[name]
