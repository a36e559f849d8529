"""The verbs on objects, common to all kinds; the rules of one kind are in its strategy.

Returned objects are the stored ones and must not be changed; passed objects are copied.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.clock import rfc3339
from scheduler.objects.created_pods import generated_name
from scheduler.tools.simulator.apimachinery.causes import Cause, invalid_value
from scheduler.tools.simulator.apimachinery.disabled_fields import drop_disabled
from scheduler.tools.simulator.apimachinery.patch_types import APPLY_PATCH, apply_patch
from scheduler.tools.simulator.apimachinery.server_side_apply import (
    APPLY,
    UPDATE,
    Manager,
    apply_configuration,
    track_update,
)
from scheduler.tools.simulator.apimachinery.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from scheduler.tools.simulator.apimachinery.strategy import (
    keep_system_fields,
    new_uid,
    validate_metadata,
)
from scheduler.tools.simulator.apimachinery.structure import WriteOptions, fill_in, read_object
from scheduler.tools.simulator.storage import Backup as StorageBackup
from scheduler.tools.simulator.storage import Entry, Storage, Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.clock import Clock
    from scheduler.tools.simulator.apimachinery.kinds import Kind, Kinds, Place
    from scheduler.tools.simulator.apimachinery.objects import Object

_ATTEMPTS_AT_A_NAME = 8


class Backup(NamedTuple):
    """All objects at a moment, with their history; it does not change.

    Attributes:
        version: the newest resourceVersion.
        storages: the storages of all kinds stored until then.
    """

    version: int
    storages: dict[tuple[str, str], StorageBackup]


class Registry:
    """All objects, and the operations on them."""

    def __init__(
        self, *, clock: Clock, kinds: Kinds, seed: int, history: int, namespace_lifecycle: bool = True
    ) -> None:
        """Start empty.

        Args:
            clock: source of timestamps.
            kinds: the served kinds.
            seed: seed of uids, generated names and addresses.
            history: number of kept changes per kind, for watches that resume.
            namespace_lifecycle: whether the namespace of a new object must exist.
        """
        self.clock = clock
        self.kinds = kinds
        self.versions = Versions()
        self.random = Random(seed)
        self._history = history
        self._namespace_lifecycle = namespace_lifecycle
        self._storages: dict[tuple[str, str], Storage] = {}

    def storage(self, kind: Kind) -> Storage:
        """Return the storage of a kind."""
        storage = self._storages.get(kind.storage)
        if storage is None:
            storage = self._storages[kind.storage] = Storage(self.versions, self._history)
        return storage

    def backup(self) -> Backup:
        """Return a backup of the current state."""
        storages = {kind: storage.backup() for kind, storage in self._storages.items()}
        return Backup(self.versions.current, storages)

    def restore(self, backup: Backup) -> None:
        """Restore a backup, including the resourceVersions: later versions are given out again."""
        self.versions.current = backup.version
        for kind, storage in self._storages.items():
            storage.restore(backup.storages.get(kind, StorageBackup({}, (), backup.version)))

    def find(self, resource: str, name: str, namespace: str = "") -> Object | None:
        kind = self.kinds.named(resource)
        entry = self.storage(kind).get(kind.key(namespace, name))
        return None if entry is None else entry.object

    def each(self, resource: str) -> list[Object]:
        storage = self.storage(self.kinds.named(resource))
        return [entry.object for entry in storage]

    def timestamp(self) -> str:
        return rfc3339(self.clock.utc_now())

    def random_bits(self, count: int) -> int:
        return self.random.getrandbits(count)

    def entry(self, place: Place) -> Entry | None:
        """Return one object, or None if it does not exist."""
        return self.storage(place.kind).get(place.key)

    def get(self, place: Place) -> Entry:
        """Return one object.

        Raises:
            StatusError: 404, it does not exist.
        """
        entry = self.entry(place)
        if entry is None:
            raise not_found(place.kind, place.name)
        return entry

    def create(
        self, place: Place, body: Any, options: WriteOptions, *, managed: Sequence[Object] = ()
    ) -> Entry:
        """Create an object, with its managedFields if it has any; its name is already set.

        Raises:
            StatusError: 400, 403, 404 (its namespace), 409 or 422.
        """
        kind = place.kind
        obj = self._read(kind, body, options)
        metadata = obj["metadata"]
        _set_namespace(place, metadata)
        if "resourceVersion" in metadata:
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if kind.namespaced and self._namespace_lifecycle:
            self._check_namespace(kind, metadata)
        kind.strategy.admit_create(obj, self)
        self._set_name(kind, metadata)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(field, None)
        metadata["uid"] = new_uid(self.random)
        metadata["creationTimestamp"] = self.timestamp()
        unsupported = drop_disabled(obj, None, kind.disabled)
        kind.strategy.prepare_create(obj, self)
        if kind.type is not None and kind.stored_as is None:
            fill_in(kind.type, obj)
        if managed:
            metadata["managedFields"] = list(managed)
        causes = [
            *validate_metadata(metadata, kind.strategy.name_rule),
            *kind.strategy.validate(obj),
            *unsupported,
        ]
        place = place._replace(name=metadata.get("name", ""))
        _refuse_if_invalid(kind, place.name, causes)
        kind.strategy.check_create(obj, self)
        if self.entry(place) is not None:
            raise already_exists(kind, place.name)
        if options.dry_run:
            return Entry(place.key, place.namespace, place.name, obj, 0)
        return self.storage(kind).put(place.key, place.namespace, place.name, obj)

    def load(self, place: Place, body: Any) -> Entry:
        """Store an object as it is, like one from a backup: with its uid and status, without admission and validation.

        Raises:
            StatusError: 400, it has another structure than its kind.
        """
        obj = self._read(place.kind, body, WriteOptions())
        obj["metadata"].setdefault("uid", new_uid(self.random))
        return self.storage(place.kind).put(place.key, place.namespace, place.name, obj)

    def update(self, place: Place, body: Any, options: WriteOptions) -> tuple[Entry, bool]:
        """Replace an object, or a part of it.

        Returns:
            The object, and whether it was created.

        Raises:
            StatusError: 400, 404, 409 or 422.
        """
        kind = place.kind
        obj = self._read(kind, body, options)
        metadata = obj["metadata"]
        _set_place(place, metadata)
        entry = self.entry(place)
        if entry is None:
            if not kind.strategy.create_on_update or place.subresource:
                raise not_found(kind, place.name)
            if metadata.get("uid"):
                uids = f"UID in precondition: {metadata['uid']}, UID in object meta: "
                raise conflict(kind, place.name, f"Precondition failed: {uids}")
            metadata.pop("resourceVersion", None)
            return self.create(place, kind.view(obj), options), True
        return self._put(place, entry, obj, options), False

    def patch(self, place: Place, patch: Any, patch_type: str, options: WriteOptions) -> Entry:
        """Patch a part of an object with a decoded patch of one of the media types of `patch_types`.

        Raises:
            StatusError: 400, 404, 409, 415 or 422.
        """
        if patch_type == APPLY_PATCH:
            return self._apply(place, patch, options)
        kind, entry = place.kind, self.get(place)
        patched = apply_patch(kind.view(entry.object), patch, patch_type, kind.type)
        obj = self._read(kind, patched, options)
        _set_namespace(place, obj["metadata"])
        if obj["metadata"].get("name") != place.name:
            shown = f'"{obj["metadata"].get("name", "")}"'
            cause = invalid_value("metadata.name", shown, "field is immutable")
            raise invalid(kind.group, kind.kind, place.name, [cause])
        return self._put(place, entry, obj, options)

    def _apply(self, place: Place, config: Any, options: WriteOptions) -> Entry:
        """Apply a configuration server-side; creates the object if it does not exist."""
        if isinstance(config, dict) and (config.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        kind = place.kind
        config = read_object(kind, config, options, fills=False)
        metadata = config["metadata"]
        _set_place(place, metadata)
        entry = self.entry(place)
        if entry is None and (place.subresource or metadata.get("uid")):
            raise not_found(kind, place.name)
        manager = Manager(options.manager, APPLY, kind.api_version, place.subresource)
        live = None if entry is None else kind.view(entry.object)
        result = apply_configuration(kind, live, config, manager, force=options.force, now=self.timestamp())
        managed = result["metadata"].pop("managedFields")
        if entry is None:
            return self.create(place, result, options, managed=managed)
        obj = self._read(kind, result, options)
        _set_namespace(place, obj["metadata"])
        return self._put(place, entry, obj, options, managed)

    def tracked(
        self, kind: Kind, entry: Entry, obj: Object, options: WriteOptions, subresource: str
    ) -> Object:
        """Return a changed object with updated managedFields.

        Managers are tracked only for objects that were applied server-side once.
        """
        old = entry.object
        if "managedFields" not in old["metadata"]:
            return obj
        manager = Manager(options.manager, UPDATE, kind.api_version, subresource)
        managed = track_update(kind, kind.view(old), kind.view(obj), manager, self.timestamp())
        return obj | {"metadata": obj["metadata"] | {"managedFields": managed}}

    def commit(self, kind: Kind, entry: Entry, obj: Object, options: WriteOptions) -> Entry:
        """Store a changed object, or remove it when its deletion is complete."""
        if obj == entry.object:
            return entry
        if options.dry_run:
            return entry.unstored(obj)
        if kind.strategy.is_released(obj):
            self.storage(kind).remove(entry.key)
            return entry.unstored(obj)
        return self.storage(kind).put(entry.key, entry.namespace, entry.name, obj)

    def _read(self, kind: Kind, body: Any, options: WriteOptions) -> Object:
        obj = kind.strategy.to_storage(read_object(kind, body, options))
        kind.strategy.default(obj)
        return obj

    def _put(
        self,
        place: Place,
        entry: Entry,
        obj: Object,
        options: WriteOptions,
        managed: list[Object] | None = None,
    ) -> Entry:
        """Replace an old state by a new one, after all checks."""
        kind, old, strategy = place.kind, entry.object, place.kind.strategy
        metadata = obj["metadata"]
        _check_version(kind, entry, metadata)
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            uids = f"UID in precondition: {metadata['uid']}, UID in object meta: {old['metadata']['uid']}"
            raise conflict(kind, entry.name, f"Precondition failed: {uids}")
        keep_system_fields(metadata, old["metadata"])
        causes: list[Cause]
        if place.subresource:
            strategy.prepare_part_update(place.subresource, obj, old, self)
            unsupported = drop_disabled(obj, old, kind.disabled)
            causes = [*strategy.validate_part_update(obj, old), *unsupported]
        else:
            strategy.admit_update(obj, old, self)
            unsupported = drop_disabled(obj, old, kind.disabled)
            strategy.prepare_update(obj, old)
            causes = [*strategy.validate_update(obj, old), *unsupported]
        if managed is None:
            obj = self.tracked(kind, entry, obj, options, place.subresource)
        else:
            obj["metadata"]["managedFields"] = managed
        causes = [*validate_metadata(metadata, strategy.name_rule), *causes]
        _refuse_if_invalid(kind, entry.name, causes)
        if not place.subresource:
            strategy.check_update(obj, old, self)
        return self.commit(kind, entry, obj, options)

    def _set_name(self, kind: Kind, metadata: Object) -> None:
        base = metadata.get("generateName", "")
        if metadata.get("name") or not base:
            return
        storage, namespace = self.storage(kind), metadata.get("namespace", "")
        for _ in range(_ATTEMPTS_AT_A_NAME):
            metadata["name"] = generated_name(base, self.random)
            if storage.get(kind.key(namespace, metadata["name"])) is None:
                return

    def _check_namespace(self, kind: Kind, metadata: Object) -> None:
        """Reject objects in namespaces that do not exist or are terminating."""
        name = metadata["namespace"]
        namespace = self.find("namespaces", name)
        if namespace is None:
            raise not_found(self.kinds.named("namespaces"), name)
        if "deletionTimestamp" in namespace["metadata"]:
            problem = f"unable to create new content in namespace {name} because it is being terminated"
            message = f"namespace {name} is being terminated"
            cause = Cause("NamespaceTerminating", "metadata.namespace", message)
            raise forbidden(kind, metadata.get("name", ""), problem, [cause])


def _refuse_if_invalid(kind: Kind, name: str, causes: list[Cause]) -> None:
    if not causes:
        return
    # Both versions of events are core events internally, and their errors use that name.
    group = kind.group if kind.stored_as is None else kind.stored_as[0]
    raise invalid(group, kind.kind, name, causes)


def _check_version(kind: Kind, entry: Entry, metadata: Object) -> None:
    asked = metadata.get("resourceVersion", "")
    if asked in {"", "0"}:
        if not kind.strategy.unconditional_update:
            cause = invalid_value("metadata.resourceVersion", "0", "must be specified for an update")
            raise invalid(kind.group, kind.resource, entry.name, [cause])
    elif asked != str(entry.version):
        raise conflict(kind, entry.name)
    metadata["resourceVersion"] = str(entry.version)


def _set_namespace(place: Place, metadata: Object) -> None:
    if metadata.get("namespace", place.namespace) != place.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if place.kind.namespaced:
        metadata["namespace"] = place.namespace


def _set_place(place: Place, metadata: Object) -> None:
    _set_namespace(place, metadata)
    if metadata.setdefault("name", place.name) != place.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({place.name})"
        )
