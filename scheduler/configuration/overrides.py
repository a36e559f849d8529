"""Changes a loaded configuration: overrides of the command line, and profiles of other sources."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.configuration import validation
from scheduler.configuration.decode import decode
from scheduler.configuration.defaults import with_profiles
from scheduler.configuration.feature_gates import accepted_gates, gate_faults, gates_in_vain
from scheduler.configuration.notes import ConfigurationNote
from scheduler.configuration.types import Plugins, Profile
from scheduler.configuration.validation import leader_election_faults, sharding_faults
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import child, entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    changed = msgspec.structs.replace(settings, leader_election=election)
    faults += sharding_faults(changed)
    if faults:
        raise ConfigurationError(faults, configuration.source)
    return dataclasses.replace(configuration, settings=changed)


class GivenFeatures(NamedTuple):
    """The flags of a command line about features.

    Attributes:
        version: the emulated version of Kubernetes; "" if not given.
        gates: feature gate -> whether it is on.
    """

    version: str = ""
    gates: Mapping[str, bool] = {}


def with_features(configuration: Configuration, given: GivenFeatures, *, server: str = "") -> Configuration:
    """Return a configuration with another emulated version, in which these feature gates replace those of the same names.

    Args:
        configuration: the configuration.
        given: replaces its version and gates.
        server: the API server's version, used if neither names one. Gates that it does not accept are left out, with a
            note: an upgrade of the server does not make a configuration invalid. "" for the default version.

    Raises:
        ConfigurationError: the resulting gates are invalid; contains all errors.
    """
    settings = configuration.settings
    version = given.version or settings.emulated_version
    gates: Mapping[str, bool] = {**settings.feature_gates, **given.gates}

    def path(gate: str) -> str:
        return "--feature-gates" if gate in given.gates else child("featureGates", gate)

    left_out: Sequence[tuple[str, str]] = ()
    if server and not version:
        version = server
        gates, left_out = accepted_gates(gates, version)
    else:
        faults = [FieldError(path(gate), fault) for gate, fault in gate_faults(gates, version)]
        if faults:
            raise ConfigurationError(faults, configuration.source)
    in_vain = [
        *(
            ConfigurationNote(path(gate), f"has no effect in Kubernetes {version}: {fault}", is_left_out=True)
            for gate, fault in left_out
        ),
        *(ConfigurationNote("--feature-gates", f"{gate} {why}") for gate, why in gates_in_vain(given.gates)),
    ]
    return dataclasses.replace(
        configuration,
        settings=msgspec.structs.replace(settings, emulated_version=version, feature_gates=gates),
        notes=(*configuration.notes, *in_vain),
    )


@dataclass(frozen=True, slots=True)
class ReadProfile:
    """One parsed profile, without defaults.

    Attributes:
        profile: the profile, with defaults for invalid values.
        errors: all errors of the profile itself; paths begin with `spec.`.
    """

    profile: Profile
    errors: tuple[FieldError, ...]


def read_profile(spec: Any) -> ReadProfile:
    """Parse an entry of `profiles`; it must have a name."""
    profile, errors = decode(spec, Profile, "spec")
    if profile is None:
        return ReadProfile(Profile(), tuple(errors))
    faulty = [error.path for error in errors]
    rules = (_at_spec(fault, 0) for fault in validation.profile_faults([profile]))
    # Defaults replace unreadable values.
    errors.extend(rule for rule in rules if not any(rule.path.startswith(path) for path in faulty))
    return ReadProfile(profile, tuple(errors))


def with_more_profiles(base: Configuration, profiles: Sequence[Profile]) -> Configuration:
    """Return a configuration with additional profiles, with new names, after its own."""
    if not profiles:
        return base
    added = with_profiles(msgspec.structs.replace(base.settings, profiles=tuple(profiles))).profiles
    settings = msgspec.structs.replace(base.settings, profiles=(*base.settings.profiles, *added))
    # Paths are not converted: an old version has other paths only for its own profiles, and those are valid.
    return replace(base, settings=settings, _conversion=None)


def faults_of_added(
    errors: Iterable[FieldError], own: int, added: Sequence[Profile]
) -> dict[int, list[FieldError]]:
    """Return the errors of the added profiles.

    Args:
        errors: errors of a configuration returned by `with_more_profiles`.
        own: number of its own profiles.
        added: the added profiles, as parsed.

    Returns:
        Index of the added profile -> its errors, whose paths begin with `spec`; errors of no profile, or of
        the configuration's own profiles, are left out.
    """
    found: dict[int, list[FieldError]] = {}
    for error in errors:
        head, bracket, rest = error.path.partition("[")
        number, closed, _ = rest.partition("]")
        if head == "profiles" and bracket and closed and number.isdigit() and int(number) >= own:
            place = int(number) - own
            found.setdefault(place, []).append(_at_the_name(_at_spec(error, int(number)), added[place]))
    return found


def _at_the_name(error: FieldError, profile: Profile) -> FieldError:
    """Move the error of an unavailable plugin to the profile's entry: plugins are loaded once for all points."""
    if error.path == "spec.plugins":
        for name, encoded in zip(Plugins.__struct_fields__, Plugins.__struct_encode_fields__, strict=True):
            for i, plugin in enumerate(getattr(profile.plugins, name).enabled):
                if error.plugin == plugin.name:
                    path = entry(f"{error.path}.{encoded}.enabled", i)
                    return FieldError(f"{path}.name", error.problem.removeprefix("plugin "))
    return error


def _at_spec(error: FieldError, number: int) -> FieldError:
    return replace(error, path=f"spec{error.path.removeprefix(entry('profiles', number))}")
