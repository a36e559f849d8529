"""What a command line says in place of the file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.validation import leader_election_faults
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration


def with_leader_election(configuration: Configuration, **fields: Any) -> Configuration:
    """Return a configuration with other fields of `LeaderElection`, but for those that are None.

    Raises:
        ConfigurationError: everything that is wrong with the leader election then.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    settings = configuration.settings
    election = msgspec.structs.replace(settings.leader_election, **given)
    faults = [
        FieldError(f"leaderElection.{path}", "must not be empty")
        for path, text in (
            ("resourceName", election.resource_name),
            ("resourceNamespace", election.resource_namespace),
        )
        if election.leader_elect and not text
    ]
    faults += leader_election_faults(election)
    if faults:
        raise ConfigurationError(faults, configuration.source)
    return dataclasses.replace(
        configuration, settings=msgspec.structs.replace(settings, leader_election=election)
    )
