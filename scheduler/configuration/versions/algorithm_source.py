"""`algorithmSource` of v1alpha1: the provider or policy that selects the plugins.

Source:
    kube-scheduler v1.18, pkg/scheduler/scheduler.go, New, initPolicyFromFile, initPolicyFromConfigMap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.configuration.decode import decode
from scheduler.configuration.types import ConfigurationStruct
from scheduler.configuration.versions.steps import CLUSTER_AUTOSCALER
from scheduler.errors import ConfigurationError
from scheduler.files import read_regular
from scheduler.objects.wording import did_you_mean, was

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scheduler.configuration.versions.conversion import Conversion
    from scheduler.errors import FieldError

PATH = "algorithmSource"
POLICY_KEY = "policy.cfg"
"""Key of the policy in a ConfigMap."""
_PROVIDERS = ("DefaultProvider", CLUSTER_AUTOSCALER)


class PolicyConfigMap(NamedTuple):
    """The ConfigMap that a policy is in, under the key `policy.cfg`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


class PolicyMissingError(ConfigurationError):
    """The configuration refers to a ConfigMap whose policy was not given.

    Attributes:
        config_map: the ConfigMap to read.
        kubeconfig: the configuration's own kubeconfig; "" without one.
    """

    def __init__(
        self, errors: Sequence[FieldError], source: str, config_map: PolicyConfigMap, kubeconfig: str
    ) -> None:
        super().__init__(errors, source)
        self.config_map = config_map
        self.kubeconfig = kubeconfig


@dataclass(slots=True)
class AlgorithmSource:
    """The content of the field.

    Attributes:
        provider: name of the provider; "" for the default one.
        policy: text of a policy; None without one.
        where: name of the policy's source, for messages.
        path: path of the field that refers to the policy.
        files: the files that were read.
        missing: the ConfigMap that must be read.
    """

    provider: str = ""
    policy: str | None = None
    where: str = ""
    path: str = ""
    files: list[Path] = field(default_factory=list)
    missing: PolicyConfigMap | None = None


class _File(ConfigurationStruct, frozen=True, kw_only=True):
    path: str = ""


class _ConfigMap(ConfigurationStruct, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""


class _Policy(ConfigurationStruct, frozen=True, kw_only=True):
    file: _File | None = None
    config_map: _ConfigMap | None = None


class _Source(ConfigurationStruct, frozen=True, kw_only=True):
    provider: str | None = None
    policy: _Policy | None = None


def read_algorithm_source(
    fields: dict[str, Any],
    conversion: Conversion,
    folder: Path,
    policies: Mapping[PolicyConfigMap, str],
) -> AlgorithmSource:
    """Read the field, and the policy file it refers to, with a path relative to `folder`."""
    found = AlgorithmSource()
    if fields.get(PATH) is None:
        return found
    source, errors = decode(fields[PATH], _Source, PATH)
    conversion.errors.extend(errors)
    if source is None or errors:
        return found
    if source.provider is not None and source.policy is not None:
        conversion.fault(fields, PATH, "has a provider and a policy: only one of them is allowed")
    if source.provider:
        found.provider = source.provider
        if source.provider not in _PROVIDERS:
            conversion.fault(
                fields,
                f"{PATH}.provider",
                f"must be {' or '.join(_PROVIDERS)}, {was(source.provider)}{did_you_mean(source.provider, _PROVIDERS)}",
            )
    if source.policy is not None:
        _read_policy(source.policy, found, fields, conversion, folder, policies)
    return found


def _read_policy(
    policy: _Policy,
    found: AlgorithmSource,
    fields: dict[str, Any],
    conversion: Conversion,
    folder: Path,
    policies: Mapping[PolicyConfigMap, str],
) -> None:
    path = f"{PATH}.policy"
    if (policy.file is None) == (policy.config_map is None):
        conversion.fault(fields, path, "must have either file or configMap")
    elif policy.file is not None:
        found.path = f"{path}.file.path"
        if not policy.file.path:
            conversion.fault(fields, found.path, "is missing")
            return
        file = folder / policy.file.path
        found.where = str(file)
        found.files.append(file)
        try:
            found.policy = read_regular(file).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            conversion.fault(fields, found.path, f"{file} is not UTF-8: byte {error.start}")
        except (OSError, ValueError) as error:  # ValueError for a name that no file can have
            why = getattr(error, "strerror", None) or error
            conversion.fault(fields, found.path, f"{file} cannot be read: {why}")
    elif policy.config_map is not None:
        found.path = f"{path}.configMap"
        if not policy.config_map.namespace or not policy.config_map.name:
            conversion.fault(fields, found.path, "needs a namespace and a name")
            return
        where = PolicyConfigMap(policy.config_map.namespace, policy.config_map.name)
        found.where = f"{where}, {POLICY_KEY}"
        if where in policies:
            found.policy = policies[where]
        else:
            found.missing = where
