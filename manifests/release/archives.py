"""Archives that are the same whenever and wherever they are written, and archives of OCI image layouts."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_LAYOUT: Final = {"imageLayoutVersion": "1.0.0"}


def tar(files: Mapping[str, bytes], seconds: int, executable: frozenset[str] = frozenset()) -> bytes:
    """Return a tar archive.

    Args:
        files: name -> content.
        seconds: time of the files, since 1970.
        executable: names of those that can be executed.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = (
                len(content),
                seconds,
                0o755 if name in executable else 0o644,
            )
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def compressed(content: bytes) -> bytes:
    """Return content in the format of gzip, without a name and a time."""
    return gzip.compress(content, mtime=0)


class Blob(NamedTuple):
    """A part of an image layout.

    Attributes:
        media_type: its type.
        content: its bytes.
    """

    media_type: str
    content: bytes

    @classmethod
    def json(cls, media_type: str, value: object) -> Blob:
        """Return a part that is a JSON document."""
        return cls(media_type, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    @property
    def digest(self) -> str:
        """The digest by which it is named."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    def descriptor(self, **more: object) -> dict[str, object]:
        """Return what names it in another part.

        Args:
            more: other fields, such as `platform`.
        """
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content), **more}


def oci_archive(blobs: list[Blob], tag: str, seconds: int) -> bytes:
    """Return a tar archive of an OCI image layout.

    Args:
        blobs: its parts. The last one is its manifest or index.
        tag: the name of that part.
        seconds: time of the files, since 1970.

    Source:
        OCI image specification 1.1, image-layout.md.
    """
    root = blobs[-1].descriptor(annotations={"org.opencontainers.image.ref.name": tag})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [root]}
    files = {f"blobs/sha256/{blob.digest.removeprefix('sha256:')}": blob.content for blob in blobs}
    files["oci-layout"] = Blob.json("", _LAYOUT).content
    files["index.json"] = Blob.json(INDEX, index).content
    return tar(files, seconds)


class Manifest(NamedTuple):
    """A manifest in an OCI archive.

    Attributes:
        digest: its digest.
        platform: such as linux/amd64; empty if it is not for one.
        config: its configuration.
        layers: media types and digests of its layers.
    """

    digest: str
    platform: str
    config: dict[str, Any]
    layers: tuple[tuple[str, str], ...]


class OciArchive:
    """A tar archive of an OCI image layout, to read.

    Args:
        path: of the archive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index = json.loads(self._read("index.json"))

    def _read(self, name: str) -> bytes:
        with tarfile.open(self._path) as archive:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

    def blob(self, digest: str) -> bytes:
        """Return the content of a part."""
        return self._read(f"blobs/{digest.replace(':', '/')}")

    @property
    def digest(self) -> str:
        """The digest under which a registry stores the content of the archive."""
        (root,) = self._index["manifests"]
        return str(root["digest"])

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests, also those of indexes in the index."""
        waiting = [*self._index["manifests"]]
        while waiting:
            descriptor = waiting.pop(0)
            document = json.loads(self.blob(descriptor["digest"]))
            if "manifests" in document:
                waiting += document["manifests"]
                continue
            platform = descriptor.get("platform", {})
            yield Manifest(
                descriptor["digest"],
                "/".join(platform[part] for part in ("os", "architecture") if part in platform),
                json.loads(self.blob(document["config"]["digest"])),
                tuple((layer["mediaType"], layer["digest"]) for layer in document["layers"]),
            )


def extract(archive: tarfile.TarFile, folder: str | Path) -> None:
    """Unpack an archive; from Python 3.11.4 on, a file outside of the folder is an error."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202  # see above
