"""The fields of live objects that identify other schedulers."""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct):
    """Name and namespace of an object."""

    name: str = ""
    namespace: str = ""


class Container(msgspec.Struct):
    """The command of a container."""

    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)


class PodSpec(msgspec.Struct, rename="camel"):
    """The ServiceAccount and the containers of a pod."""

    service_account_name: str = "default"
    containers: list[Container] = msgspec.field(default_factory=list)


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Template(msgspec.Struct):
    """The pod template of a Deployment."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class DeploymentSpec(msgspec.Struct):
    """The template and the number of pods."""

    template: Template = msgspec.field(default_factory=Template)
    replicas: int = 1


class Deployment(msgspec.Struct):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)


class Event(msgspec.Struct, rename="camel"):
    """The reporter of an event."""

    reporting_instance: str = ""


class ConfigMapData(msgspec.Struct):
    """The texts of a ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
