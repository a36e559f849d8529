"""What of objects on a live cluster says who else is at work there."""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct):
    """Which object it is."""

    name: str = ""
    namespace: str = ""


class Container(msgspec.Struct):
    """What a container runs."""

    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)


class PodSpec(msgspec.Struct, rename="camel"):
    """As whom a pod runs, and what."""

    service_account_name: str = "default"
    containers: list[Container] = msgspec.field(default_factory=list)


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Template(msgspec.Struct):
    """What a Deployment's pods are made from."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class DeploymentSpec(msgspec.Struct):
    """How many of which pods."""

    template: Template = msgspec.field(default_factory=Template)
    replicas: int = 1


class Deployment(msgspec.Struct):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)


class Event(msgspec.Struct, rename="camel"):
    """Who says that something happened."""

    reporting_instance: str = ""


class ConfigMapData(msgspec.Struct):
    """The texts of a ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
