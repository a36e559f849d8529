"""Profiles that are added to a configuration in effect: each may come from elsewhere, and be wrong by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration import validation
from scheduler.configuration.decode import decode
from scheduler.configuration.defaults import with_profiles
from scheduler.configuration.types import Plugins, Profile
from scheduler.errors import FieldError
from scheduler.objects.wording import entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.configuration.load import Configuration


@dataclass(frozen=True, slots=True)
class ReadProfile:
    """One profile as it was read, without defaults.

    Attributes:
        profile: with a default in place of what is faulty.
        errors: everything that is wrong with it by itself; paths begin with `spec.`.
    """

    profile: Profile
    errors: tuple[FieldError, ...]


def read_profile(spec: Any) -> ReadProfile:
    """Read what stands at an entry of `profiles`; it has to have a name."""
    profile, errors = decode(spec, Profile, "spec")
    if profile is None:
        return ReadProfile(Profile(), tuple(errors))
    faulty = [error.path for error in errors]
    rules = (_at_spec(fault, 0) for fault in validation.profile_faults([profile]))
    # A default stands in for what cannot be read.
    errors.extend(rule for rule in rules if not any(rule.path.startswith(path) for path in faulty))
    return ReadProfile(profile, tuple(errors))


def with_more_profiles(base: Configuration, profiles: Sequence[Profile]) -> Configuration:
    """Return a configuration that has more profiles, of names that it has not, behind its own."""
    if not profiles:
        return base
    added = with_profiles(msgspec.structs.replace(base.settings, profiles=tuple(profiles))).profiles
    settings = msgspec.structs.replace(base.settings, profiles=(*base.settings.profiles, *added))
    # A path in it is what it is: an old version has other places for its own profiles only, and those are right.
    return replace(base, settings=settings, _conversion=None)


def faults_of_added(
    errors: Iterable[FieldError], own: int, added: Sequence[Profile]
) -> dict[int, list[FieldError]]:
    """Return what is wrong with the profiles that were added.

    Args:
        errors: of a configuration as `with_more_profiles` returns it.
        own: how many profiles it had before.
        added: the others, as they were read.

    Returns:
        Place among those that were added -> its errors, whose paths begin with `spec`; what is said of no profile, or of
        one of the first, is left out.
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
    """Say of a plugin that cannot be had where the profile names it: plugins are loaded once for all points."""
    if error.path == "spec.plugins":
        for name, encoded in zip(Plugins.__struct_fields__, Plugins.__struct_encode_fields__, strict=True):
            for i, plugin in enumerate(getattr(profile.plugins, name).enabled):
                prefix = f"plugin {plugin.name}: "
                if error.problem.startswith(prefix):
                    path = entry(f"{error.path}.{encoded}.enabled", i)
                    return FieldError(f"{path}.name", f"{plugin.name}: {error.problem.removeprefix(prefix)}")
    return error


def _at_spec(error: FieldError, number: int) -> FieldError:
    return FieldError(f"spec{error.path.removeprefix(entry('profiles', number))}", error.problem)
