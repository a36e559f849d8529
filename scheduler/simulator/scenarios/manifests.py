"""Objects from users' files: YAML or JSON, several per file, or in a List."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.configuration.yaml_text import read_all
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import child, entry, was

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object


def read_manifests(path: str | Path) -> list[Object]:
    """Return the objects of a file.

    Raises:
        ConfigurationError: all errors of the file.
    """
    errors: list[FieldError] = []
    objects = objects_of(str(path), Path(), "", errors)
    if errors:
        raise ConfigurationError(errors, str(path))
    return objects


def objects_of(manifest: str | Object, folder: Path, where: str, errors: list[FieldError]) -> list[Object]:
    """Return an object, or those of a file, in their order; a List counts as its items.

    Args:
        manifest: an object, or the path of a YAML or JSON file.
        folder: base of relative paths.
        where: field that names it, for the errors.
        errors: errors are appended.
    """
    if isinstance(manifest, str):
        try:
            documents = read_all((folder / manifest).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            errors.append(FieldError(where, f"cannot be read: {error}"))
            return []
        errors += [
            FieldError(f"{where}: {manifest}", str(error))
            for document in documents
            for error in document.errors
        ]
        found = [document.value for document in documents if document.value is not None]
    else:
        found = [manifest]
    flat: list[Object] = []
    for one in found:
        is_list = isinstance(one, dict) and isinstance(one.get("items"), list)
        flat += one["items"] if is_list else [one]
    for index, one in enumerate(flat):
        errors += _object_faults(one, where if len(flat) == 1 else entry(where or "objects", index))
    return flat


def _object_faults(obj: Any, where: str) -> list[FieldError]:
    if not isinstance(obj, dict):
        return [FieldError(where, f"must be an object, {was(obj)}")]
    metadata = obj.get("metadata")
    faults = [
        FieldError(child(where, field), f"must be text, {was(obj[field])}" if field in obj else "is missing")
        for field in ("apiVersion", "kind")
        if not isinstance(obj.get(field), str)
    ]
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        faults.append(FieldError(child(child(where, "metadata"), "name"), "is missing"))
    return faults
