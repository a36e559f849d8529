"""Overrides of the configuration file by the command line."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.feature_gates import gate_faults, gates_in_vain
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.validation import leader_election_faults
from scheduler.errors import ConfigurationError, FieldError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.load import Configuration


def with_leader_election(configuration: Configuration, **fields: Any) -> Configuration:
    """Return a configuration with changed fields of `LeaderElection`; None leaves a field unchanged.

    Raises:
        ConfigurationError: the resulting leader election is invalid; contains all errors.
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


def with_feature_gates(configuration: Configuration, given: Mapping[str, bool]) -> Configuration:
    """Return a configuration in which these feature gates replace those of the same names.

    Raises:
        ConfigurationError: the resulting gates are invalid; contains all errors.
    """
    settings = configuration.settings
    gates = {**settings.feature_gates, **given}
    faults = [FieldError(_place(gate, given), fault) for gate, fault in gate_faults(gates)]
    if faults:
        raise ConfigurationError(faults, configuration.source)
    in_vain = [ConfigurationNote("--feature-gates", f"{gate} {why}") for gate, why in gates_in_vain(given)]
    return dataclasses.replace(
        configuration,
        settings=msgspec.structs.replace(settings, feature_gates=gates),
        notes=(*configuration.notes, *in_vain),
    )


def _place(gate: str, given: Mapping[str, bool]) -> str:
    return "--feature-gates" if gate in given else f"featureGates.{gate}"
