"""The fields of live objects that identify other schedulers."""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct):
    """Name and namespace of an object."""

    name: str = ""
    namespace: str = ""


class LiveContainer(msgspec.Struct):
    """The command of a container."""

    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)


class LivePodSpec(msgspec.Struct, rename="camel"):
    """The ServiceAccount and the containers of a pod."""

    service_account_name: str = "default"
    containers: list[LiveContainer] = msgspec.field(default_factory=list)


class LivePod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: LivePodSpec = msgspec.field(default_factory=LivePodSpec)


class Template(msgspec.Struct):
    """The pod template of a Deployment."""

    spec: LivePodSpec = msgspec.field(default_factory=LivePodSpec)


class DeploymentSpec(msgspec.Struct):
    """The template and the number of pods."""

    template: Template = msgspec.field(default_factory=Template)
    replicas: int = 1


class Deployment(msgspec.Struct):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)


class LiveEvent(msgspec.Struct, rename="camel"):
    """The reporter of an event."""

    reporting_instance: str = ""


class ConfigMapData(msgspec.Struct):
    """The texts of a ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
