"""The chart of a release: the package that Helm installs, and an OCI artefact with it for a registry.

Helm is not needed: a package is a tar archive, and `helm package` would write the present time into it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml

from manifests.release.archives import MANIFEST, Blob, compressed, oci_archive, tar
from manifests.release.commands import ReleaseError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_REPOSITORY: Final = re.compile(r"^  repository: .*$", re.MULTILINE)


def package(chart: Path, seconds: int, image: str) -> bytes:
    """Return the package of a chart.

    Args:
        chart: folder of the chart.
        seconds: time of the files, since 1970.
        image: name of the image, without a tag, that the chart installs if no value names another one; empty for that in
            values.yaml.

    Raises:
        ReleaseError: values.yaml has no image.
    """
    name = yaml.safe_load((chart / "Chart.yaml").read_text())["name"]
    files = {
        f"{name}/{path.relative_to(chart)}": path.read_bytes() for path in chart.rglob("*") if path.is_file()
    }
    if image:
        values, count = _REPOSITORY.subn(f"  repository: {image}", files[f"{name}/values.yaml"].decode())
        if count != 1:
            raise ReleaseError("values.yaml of the chart has no image.repository, or several")
        files[f"{name}/values.yaml"] = values.encode()
    return compressed(tar(files, seconds))


def artefact(chart: Path, content: bytes, seconds: int, date: str) -> bytes:
    """Return an OCI archive as `helm push` would store it in a registry.

    Args:
        chart: folder of the chart.
        content: the package of the chart.
        seconds: time of the files, since 1970.
        date: the same in RFC 3339.

    Source:
        Helm 4, pkg/registry/client.go, Push, and chart.go, generateOCIAnnotations.
    """
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    config, layer = Blob.json(CONFIG, metadata), Blob(CONTENT, content)
    annotations = {
        "org.opencontainers.image.created": date,
        "org.opencontainers.image.description": metadata["description"],
        "org.opencontainers.image.title": metadata["name"],
        "org.opencontainers.image.version": metadata["version"],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
        "annotations": annotations,
    }
    return oci_archive([config, layer, Blob.json(MANIFEST, manifest)], metadata["version"], seconds)
