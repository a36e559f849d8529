"""The parts of metadata that scheduling reads."""

from __future__ import annotations

import msgspec

ResourceList = dict[str, str | int | float]
"""v1.ResourceList as written; quantities are parsed on use."""


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base class of all decoded API objects: immutable, camelCase on the wire, unknown fields ignored.

    They have no reference cycles, so the garbage collector can skip them: there are very many.
    """


class Condition(ApiStruct, frozen=True):
    """metav1.Condition, with the fields that scheduling reads."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class OwnerReference(ApiStruct, frozen=True):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiStruct, frozen=True):
    """metav1.ObjectMeta; times stay RFC 3339 text."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    owner_references: tuple[OwnerReference, ...] = ()
